#pragma once
// The order of samples in training: a pure function of seed, epoch and position, so that any place is reached at once
// (docs/adr/0046-input-is-a-function-of-position.md).
#include <array>
#include <cstdint>
#include <span>

namespace sluice {

// A hash of words, which is the same on every machine.
uint64_t mixed(std::span<const uint64_t> words);

// A permutation of 0 to n - 1: a Feistel network over the next power of four, which is walked until it is back among
// them.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key);
  uint64_t operator()(uint64_t position) const;  // REQUIRES: position < n

 private:
  uint64_t n_;
  int bits_;  // of each half
  std::array<uint64_t, 6> keys_;
};

}  // namespace sluice
