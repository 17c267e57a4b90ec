#include "tools/plan_viz/slots.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/time/fast_quotas.h"
#include "plan/verify.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

// Leaves out buffers, and puts those that are left in an arena without a stream one behind the other.
void without_buffers(Plan& plan, const std::vector<bool>& dropped) {
  std::vector<int> place(plan.buffers.size(), -1);
  std::vector<Buffer> left;
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    if (dropped[b]) continue;
    place[b] = static_cast<int>(left.size());
    left.push_back(plan.buffers[b]);
  }
  plan.buffers = std::move(left);
  for (Register& reg : plan.registers)
    for (int& slot : reg.slots) slot = place[slot];
  for (Kernel& kernel : plan.kernels) {
    if (kernel.workspace >= 0) kernel.workspace = place[kernel.workspace];
    for (std::vector<View>* views : {&kernel.inputs, &kernel.outputs})
      for (View& view : *views)
        if (view.base == BaseKind::kBuffer && view.index >= 0) view.index = place[view.index];
  }
  for (Arena& arena : plan.arenas)
    if (arena.stream < 0) arena.bytes = 0;
  for (Buffer& buffer : plan.buffers) {
    Arena& arena = plan.arenas[buffer.arena];
    if (arena.stream >= 0) continue;
    buffer.offset = arena.bytes;
    arena.bytes += align_up(buffer.bytes, kAlignment);
    arena.lower_bound = arena.bytes;
  }
}

Plan with_quotas(Plan plan, const std::vector<int>& registers, const std::vector<int>& quotas) {
  std::vector<bool> dropped(plan.buffers.size(), false);
  for (size_t i = 0; i < registers.size(); ++i) {
    Register& reg = plan.registers[registers[i]];
    reg.quota = quotas[i];
    while (static_cast<int>(reg.slots.size()) > reg.quota) {
      dropped[reg.slots.back()] = true;
      reg.slots.pop_back();
    }
    while (static_cast<int>(reg.slots.size()) < reg.quota) {
      Buffer slot = plan.buffers[reg.slots[0]];
      slot.name = reg.name + "[" + std::to_string(reg.slots.size()) + "]";
      reg.slots.push_back(static_cast<int>(plan.buffers.size()));
      plan.buffers.push_back(std::move(slot));
      dropped.push_back(false);
    }
  }
  without_buffers(plan, dropped);
  plan.certificate.clear();
  try {
    plan.certificate = find_schedule(plan);
  } catch (const Error&) {  // it can block, and verify() will say how
  }
  return plan;
}

int least_quota(const Plan& plan, int reg) {
  int least = std::max(1, plan.registers[reg].initial_tokens);
  for (const Edge& edge : plan.edges)
    if (edge.reg == reg) least = std::max(least, edge.take);
  return least;
}

}  // namespace

std::vector<Plan> plans_with_slots(const Plan& plan, int most) {
  const std::vector<int> groups = slot_groups(plan);
  std::vector<int> registers, least, quotas;
  size_t count = 1;
  for (int r = 0; r < static_cast<int>(plan.registers.size()); ++r) {
    const bool alone = std::ranges::count(groups, groups[r]) == 1 && plan.registers[r].in_place_of < 0;
    const bool in_arena =
        !plan.registers[r].slots.empty() && plan.arenas[plan.buffers[plan.registers[r].slots[0]].arena].stream < 0;
    const int from = least_quota(plan, r);
    if (!alone || !in_arena || from >= most) continue;
    registers.push_back(r);
    least.push_back(from);
    count = std::min(kMostPlans + 1, count * static_cast<size_t>(most - from + 1));
  }
  SLUICE_CHECK(!registers.empty(),
               "html: --slots {}: no register of the plan can have another number of slots up to that", most);
  SLUICE_CHECK(count <= kMostPlans, "html: --slots {}: of {} registers these are more than {} plans; must be fewer",
               most, registers.size(), kMostPlans);
  std::vector<Plan> plans;
  quotas = least;
  for (;;) {
    plans.push_back(with_quotas(plan, registers, quotas));
    size_t i = 0;
    while (i < quotas.size() && quotas[i] == most) quotas[i] = least[i], ++i;
    if (i == quotas.size()) return plans;
    ++quotas[i];
  }
}

}  // namespace sluice::plan_viz
