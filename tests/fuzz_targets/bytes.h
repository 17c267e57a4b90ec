#pragma once
// Reads structure from fuzzed bytes: once they are used up everything is zero, so every input means something.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>

#include "base/dtype.h"
#include "base/shape.h"

namespace sluice::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  uint8_t byte() { return empty() ? 0 : *at_++; }
  // In [0, n); n > 0.
  int below(int n) { return n <= 256 ? byte() % n : (byte() * 256 + byte()) % n; }
  bool flag() { return byte() & 1; }
  int64_t whole() {
    uint64_t v = 0;
    for (int i = 0; i < 8; ++i) v = v << 8 | byte();
    return static_cast<int64_t>(v);
  }
  // Mostly small, often at the edge of what arithmetic can hold.
  int64_t integer() {
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
    constexpr int64_t kEdges[] = {kMin,
                                  kMin + 1,
                                  kMax,
                                  kMax - 1,
                                  int64_t{1} << 62,
                                  int64_t{1} << 61,
                                  1LL << 32,
                                  1LL << 31,
                                  (1LL << 31) - 1,
                                  -(1LL << 31),
                                  -(1LL << 32),
                                  3037000500,
                                  2097152,
                                  65536,
                                  255,
                                  -1};
    const uint8_t kind = byte();
    if (kind < 160) return kind % 10;
    if (kind < 176) return kEdges[kind - 160];
    if (kind < 240) return static_cast<int8_t>(byte());
    return whole();
  }
  double real() {
    constexpr double kEdges[] = {0,
                                 -0.0,
                                 1,
                                 -1,
                                 0.5,
                                 1e308,
                                 -1e308,
                                 5e-324,
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN(),
                                 9.3e18};
    return kEdges[below(std::size(kEdges))];
  }
  Shape shape() {
    Shape s;
    for (int n = below(kMaxRank + 1); n > 0; --n) s.push_back(integer());
    return s;
  }
  DType dtype() { return static_cast<DType>(below(kNumDTypes)); }
  std::string text(size_t n) {
    n = std::min(n, static_cast<size_t>(end_ - at_));
    std::string s(reinterpret_cast<const char*>(at_), n);
    at_ += n;
    return s;
  }
  std::string rest() { return text(static_cast<size_t>(end_ - at_)); }

 private:
  const uint8_t *at_, *end_;
};

}  // namespace sluice::fuzz
