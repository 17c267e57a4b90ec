#pragma once
// How a logical tensor lies on several devices along one mesh axis.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct Sbp {
  enum class Kind : uint8_t { kSplit, kBroadcast, kPartialSum };
  Kind kind = Kind::kBroadcast;
  int axis = 0;  // of kSplit
  static Sbp split(int axis) { return {Kind::kSplit, axis}; }
  static Sbp broadcast() { return {Kind::kBroadcast, 0}; }
  static Sbp partial_sum() { return {Kind::kPartialSum, 0}; }
  std::string str() const;  // "S(0)", "B", "P"
  bool operator==(const Sbp&) const = default;
};

// Reads what str() prints. Throws kValue that names the three forms.
Sbp parse_sbp(std::string_view text);

// One legal combination: with inputs so placed, each shard computes its part of outputs so placed.
struct SbpRow {
  std::vector<Sbp> inputs;
  std::vector<Sbp> outputs;
};

}  // namespace sluice
