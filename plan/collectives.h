#pragma once
// The kernels that ranks run together, of which plans know no more than their op's name: what each does with its
// operands. Their code is in kernels/collectives.h, what they take in docs/plan-format.md.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice::plan {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kSend,
  kReceive,
};

struct Collective {
  const char* op;
  CollectiveKind kind;
  // Dimension 0 of the output on n ranks, as that of the input.
  enum class Size : uint8_t { kSame, kTimesRanks, kOverRanks } size = Size::kSame;
  bool along_dim0 = false;  // ranks' parts lie along dimension 0 of the larger operand
  bool on_devices = false;  // a device's backend may have it in the device's memory
  bool of_two = false;      // between two ranks, of which each has one of its operands
};

std::span<const Collective> collectives();
const Collective* find_collective(std::string_view op);  // null when there is none
// "all_reduce, all_gather, ..." of those that all ranks of a group are in.
std::string collective_names();

}  // namespace sluice::plan
