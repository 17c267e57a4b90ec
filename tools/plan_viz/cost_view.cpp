// cost: what kernels took when they ran.
#include "plan/json/json.h"
#include "plan/query.h"
#include "plan/time/costs.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

// Kernels of equal signatures.
struct Row {
  KernelHistory history;
  int calls = 0;          // in the plan
  double planned_ns = 0;  // what the plan says that one takes
};

// All that is known; of a plan, its kernels, whether or not they are.
std::vector<Row> rows_of(const Machine& machine, const Plan* plan) {
  std::vector<Row> rows;
  if (plan == nullptr) {
    for (const KernelHistory& h : machine.measured) rows.push_back({h});
    return rows;
  }
  std::map<KernelSignature, Row> by_signature;
  const std::vector<int> streams = streams_of_kernels(*plan);
  for (size_t k = 0; k < streams.size(); ++k) {
    if (streams[k] < 0) continue;
    const Kernel& kernel = plan->kernels[k];
    const KernelSignature signature = signature_of(query_of(*plan, kernel, plan->streams[streams[k]]));
    Row& row = by_signature[signature];
    row.history.kernel = signature;
    ++row.calls;
    row.planned_ns = kernel.cost_ns;
  }
  for (const KernelHistory& h : machine.measured) {
    if (const auto row = by_signature.find(h.kernel); row != by_signature.end()) row->second.history = h;
  }
  for (auto& [signature, row] : by_signature) rows.push_back(std::move(row));
  return rows;
}

std::string kernel_str(const KernelSignature& k) {
  return fmt::format("{}  {}{}", k.op, k.operands, k.attrs.empty() ? "" : "  {" + k.attrs + "}");
}

}  // namespace

std::string cost_text(const Machine& machine, const Plan* plan, const TextOptions& options) {
  const std::vector<Row> rows = rows_of(machine, plan);
  std::vector<std::vector<std::string>> lines = {{"n", "mean", "std", "min", "max", "device", "cores", "kernel"}};
  std::vector<bool> right = {true, true, true, true, true, false, true, false};
  if (plan != nullptr) {
    lines[0].insert(lines[0].begin(), {"calls", "in the plan"});
    right.insert(right.begin(), 2, true);
  }
  size_t known = 0;
  for (const Row& row : rows) {
    const KernelHistory& h = row.history;
    known += h.runs > 0;
    const auto time = [&](double ns) { return h.runs > 0 ? time_str(ns) : "-"; };
    lines.push_back({fmt::format("{}", h.runs), time(h.mean_ns), time(h.std_ns()), time(h.min_ns), time(h.max_ns),
                     h.kernel.device, fmt::format("{}", h.kernel.cores), kernel_str(h.kernel)});
    if (plan != nullptr)
      lines.back().insert(lines.back().begin(), {fmt::format("{}", row.calls), time_str(row.planned_ns)});
  }
  const std::string what = plan == nullptr ? count_str(rows.size(), "kernel")
                                           : fmt::format("plan '{}', {}, {} of them measured", plan->name,
                                                         count_str(rows.size(), "different kernel"), known);
  return paint(what, Color::kBold, options) + "\n" + table(lines, right, options.width);
}

std::string cost_json(const Machine& machine, const Plan* plan) {
  std::string s = fmt::format("{{\"name\": {}, \"measured\": [", plan == nullptr ? "null" : quoted_json(plan->name));
  const char* comma = "";
  for (const Row& row : rows_of(machine, plan)) {
    const KernelHistory& h = row.history;
    s += fmt::format(
        "{}\n  {{\"op\": {}, \"attrs\": {}, \"operands\": {}, \"device\": {}, \"cores\": {}, \"n\": {}, "
        "\"mean_ns\": {}, \"std_ns\": {}, \"min_ns\": {}, \"max_ns\": {}",
        comma, quoted_json(h.kernel.op), quoted_json(h.kernel.attrs), quoted_json(h.kernel.operands),
        quoted_json(h.kernel.device), h.kernel.cores, h.runs, h.mean_ns, h.std_ns(), h.min_ns, h.max_ns);
    if (plan != nullptr) s += fmt::format(", \"calls\": {}, \"planned_ns\": {}", row.calls, row.planned_ns);
    s += "}";
    comma = ",";
  }
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
