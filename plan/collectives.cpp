#include "plan/collectives.h"

namespace sluice::plan {

using Size = Collective::Size;

static constexpr Collective kCollectives[] = {
    {"all_reduce", CollectiveKind::kAllReduce},
    {"all_gather", CollectiveKind::kAllGather, Size::kTimesRanks, true, true},
    {"reduce_scatter", CollectiveKind::kReduceScatter, Size::kOverRanks, true},
    {"all_to_all", CollectiveKind::kAllToAll, Size::kSame, true, true},
    {"broadcast", CollectiveKind::kBroadcast},
    {"send", CollectiveKind::kSend, Size::kSame, false, false, true},
    {"receive", CollectiveKind::kReceive, Size::kSame, false, false, true},
};

std::span<const Collective> collectives() { return kCollectives; }

const Collective* find_collective(std::string_view op) {
  for (const Collective& c : kCollectives)
    if (op == c.op) return &c;
  return nullptr;
}

std::string collective_names() {
  std::string names;
  for (const Collective& c : kCollectives)
    if (!c.of_two) names += (names.empty() ? "" : ", ") + std::string(c.op);
  return names;
}

}  // namespace sluice::plan
