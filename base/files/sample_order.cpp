#include "base/files/sample_order.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sluice {
namespace {

constexpr uint64_t kFirst = 0xBF58476D1CE4E5B9, kSecond = 0x94D049BB133111EB;

}  // namespace

uint64_t mixed(std::span<const uint64_t> words) {
  uint64_t state = 0x9E3779B97F4A7C15;
  for (const uint64_t word : words) {
    state = (state ^ word) * kFirst;
    state = (state ^ (state >> 27)) * kSecond;
    state ^= state >> 31;
  }
  return state;
}

Permutation::Permutation(uint64_t n, uint64_t key)
    : n_(n), bits_(std::max((static_cast<int>(std::bit_width(std::max<uint64_t>(n, 1) - 1)) + 1) / 2, 1)) {
  for (uint64_t i = 0; i < keys_.size(); ++i) keys_[i] = mixed(std::array{key, i});
}

uint64_t Permutation::operator()(uint64_t position) const {
  const uint64_t mask = (uint64_t{1} << bits_) - 1;
  do {
    uint64_t left = position >> bits_, right = position & mask;
    for (const uint64_t key : keys_) {
      uint64_t x = (right + key) * kFirst;
      x = (x ^ (x >> 29)) * kSecond;
      left ^= (x ^ (x >> 32)) & mask;
      std::swap(left, right);
    }
    position = left << bits_ | right;
  } while (position >= n_);
  return position;
}

}  // namespace sluice
