#pragma once
// Fingerprints of bytes, to tell with near certainty whether they are those of before.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sluice {

// A fingerprint of pieces that are added in turn: equal pieces in equal order have equal fingerprints on every machine.
// It is as fast as memory and finds changes that happen by accident. It proves nothing against an attacker, who can
// make other pieces with the same fingerprint.
class Fingerprint {
 public:
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    uint64_t lanes[4] = {state_, state_ + 1, state_ + 2, state_ + 3};  // which do not wait for each other
    size_t left = bytes;
    for (; left >= 32; left -= 32, at += 32)
      for (int lane = 0; lane < 4; ++lane) lanes[lane] = step(lanes[lane], at + 8 * lane, 8);
    for (int lane = 0; left > 0; ++lane) {
      const size_t count = left < 8 ? left : 8;
      lanes[lane] = step(lanes[lane], at, count);
      at += count;
      left -= count;
    }
    state_ = mixed(bytes);
    for (const uint64_t lane : lanes) state_ = mixed(state_ ^ lane) + lane;
  }
  void add(std::string_view text) { add(text.data(), text.size()); }
  // 16 digits.
  std::string str() const {
    std::string text(16, '0');
    for (size_t i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[state_ >> (60 - 4 * i) & 15];
    return text;
  }

 private:
  static uint64_t step(uint64_t lane, const unsigned char* at, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, at, count);
    return std::rotl((lane ^ word) * 0x9E3779B97F4A7C15ull, 29);
  }
  // The finish of splitmix64 (Steele, Lea, Flood 2014): every bit of the result depends on every bit of `x`.
  static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }
  uint64_t state_ = 0x6A09E667F3BCC908ull;
};

}  // namespace sluice
