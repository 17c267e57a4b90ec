#include "plan/pack/ledger.h"

#include <algorithm>
#include <numeric>

#include "base/fix.h"
#include "base/shape.h"
#include "plan/firing/firing_counts.h"

namespace sluice::plan {

Ledger ledger(const Plan& plan) {
  Ledger ledger;
  ledger.space_bytes.resize(plan.spaces.size());
  const auto add = [&](LedgerLine line, uint64_t& category) {
    ledger.space_bytes[line.space] = checked_add(ledger.space_bytes[line.space], line.bytes);
    category = checked_add(category, line.bytes);
    ledger.total = checked_add(ledger.total, line.bytes);
    if (line.shared) ledger.shared += line.bytes;
    ledger.lines.push_back(line);
  };
  for (int a = 0; a < static_cast<int>(plan.arenas.size()); ++a) {
    const Arena& arena = plan.arenas[a];
    add({LedgerLine::Kind::kArena, a, arena.space, align_up(arena.bytes, kAlignment)}, ledger.arenas);
  }
  const std::vector<bool> shared = shared_variables(plan);
  for (int v = 0; v < static_cast<int>(plan.variables.size()); ++v) {
    const Variable& variable = plan.variables[v];
    const uint64_t bytes = align_up(variable.spec.extent_bytes(), kAlignment);
    if (variable.constant) {
      add({LedgerLine::Kind::kConstant, v, variable.space, bytes, shared[v]}, ledger.constants);
    } else {
      add({LedgerLine::Kind::kVariable, v, variable.space, bytes, shared[v]}, ledger.variables);
    }
  }
  const auto is_shared = [&](const PackedCopy& copy) {
    const std::vector<int> sources = sources_of(copy);
    return std::all_of(sources.begin(), sources.end(), [&](int source) { return shared[source]; });
  };
  for (int p = 0; p < static_cast<int>(plan.packed.size()); ++p) {
    const PackedCopy& copy = plan.packed[p];
    add({LedgerLine::Kind::kPacked, p, plan.variables[copy.variable].space, align_up(copy.bytes, kAlignment),
         is_shared(copy)},
        ledger.packed);
  }
  enum class Use : uint8_t { kIntermediate, kSlot, kWorkspace };
  std::vector<Use> use(plan.buffers.size(), Use::kIntermediate);
  for (const Kernel& k : plan.kernels) {
    if (k.workspace >= 0) use[k.workspace] = Use::kWorkspace;
  }
  for (const Register& r : plan.registers) {
    for (const int slot : r.slots) use[slot] = Use::kSlot;
  }
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const uint64_t bytes = align_up(plan.buffers[b].bytes, kAlignment);
    uint64_t& category = use[b] == Use::kSlot        ? ledger.register_slots
                         : use[b] == Use::kWorkspace ? ledger.workspaces
                                                     : ledger.intermediates;
    category = checked_add(category, bytes);
  }
  return ledger;
}

const std::string& line_name(const Plan& plan, const LedgerLine& line) {
  switch (line.kind) {
    case LedgerLine::Kind::kArena: return plan.arenas[line.index].name;
    case LedgerLine::Kind::kPacked: return plan.packed[line.index].name;
    case LedgerLine::Kind::kVariable:
    case LedgerLine::Kind::kConstant: break;
  }
  return plan.variables[line.index].name;
}

const char* line_kind_name(LedgerLine::Kind kind) {
  switch (kind) {
    case LedgerLine::Kind::kArena: return "arena";
    case LedgerLine::Kind::kVariable: return "variable";
    case LedgerLine::Kind::kConstant: return "constant";
    case LedgerLine::Kind::kPacked: return "packed";
  }
  return "?";
}

std::string line_note(const Plan& plan, const LedgerLine& line) {
  if (line.kind == LedgerLine::Kind::kArena) return "";
  std::string readers;
  int count = 0;
  const bool packed = std::any_of(plan.packed.begin(), plan.packed.end(), [&](const PackedCopy& copy) {
    const std::vector<int> sources = sources_of(copy);
    return std::find(sources.begin(), sources.end(), line.index) != sources.end();
  });
  for (const Kernel& kernel : plan.kernels) {
    for (const View& view : kernel.inputs) {
      if (view.base != BaseKind::kVariable || view.index < 0 || view.packed < 0) continue;
      if (line.kind != LedgerLine::Kind::kPacked || view.packed != line.index) continue;
      if (++count == 1) readers = fmt::format("'{}' reads", kernel.name);
    }
  }
  if (line.kind != LedgerLine::Kind::kPacked)
    return packed && !read_plain(plan)[line.index] ? "kernels read it packed only" : "";
  if (count > 1) readers = fmt::format("{} kernels read", count);
  const PackedCopy& copy = plan.packed[line.index];
  const std::string derived = derivation_str(plan, copy);
  std::string form = copy.format;
  if (!derived.empty()) form = derived + (form.empty() ? "" : ", " + form);
  return fmt::format("as {} it: {}", count == 0 ? "nobody reads" : readers, form);
}

std::vector<bool> arenas_with_state(const Plan& plan) {
  // Tokens are under way between steps where a period is several of them, or where actors fire ahead of any step.
  const FiringCounts counts(plan);
  bool all = counts.period() > 1;
  for (size_t a = 0; a < plan.actors.size(); ++a) all = all || counts.after(static_cast<int>(a), 0) > 0;
  std::vector<bool> state(plan.arenas.size(), all);
  for (const Register& r : plan.registers) {
    for (int t = 0; t < r.initial_tokens && r.bytes > 0; ++t) state[plan.buffers[r.slots[t]].arena] = true;
  }
  return state;
}

std::vector<bool> shared_variables(const Plan& plan) {
  std::vector<bool> shared = written_variables(plan);
  for (size_t v = 0; v < shared.size(); ++v)
    shared[v] = !shared[v] && plan.spaces[plan.variables[v].space].kind == SpaceKind::kHost;
  return shared;
}

void check_budget(const Plan& plan, uint64_t budget) {
  if (budget == 0) return;
  const Ledger ledger = plan::ledger(plan);
  if (ledger.total <= budget) return;
  const std::string blame = largest_registers(plan);
  throw FixableError(
      ErrorKind::kMemory,
      fmt::format(
          "plan '{}': over its memory budget: needs {}, budget {}; the smallest budget that works is {} bytes{}{}",
          plan.name, bytes_str(ledger.total), bytes_str(budget), ledger.total,
          blame.empty() ? "" : "; largest registers: ", blame),
      {{"option", std::string("memory_budget")}, {"value", static_cast<int64_t>(ledger.total)}});
}

std::string largest_registers(const Plan& plan) {
  std::vector<int> order(plan.registers.size());
  std::iota(order.begin(), order.end(), 0);
  const auto weight = [&](int r) { return plan.registers[r].bytes * static_cast<uint64_t>(plan.registers[r].quota); };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return weight(a) > weight(b); });
  constexpr size_t kNamed = 5;
  std::string blame;
  for (size_t i = 0; i < order.size() && i < kNamed && weight(order[i]) > 0; ++i) {
    const Register& r = plan.registers[order[i]];
    blame += fmt::format("{}'{}' ({} slots of {})", i ? ", " : "", r.name, r.quota, bytes_str(r.bytes));
  }
  return blame;
}

std::string bytes_str(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {} ({} bytes)", value, kUnits[unit], bytes);
}

}  // namespace sluice::plan
