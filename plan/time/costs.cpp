#include "plan/time/costs.h"

#include <algorithm>
#include <cmath>

#include "plan/query.h"

namespace sluice::plan {
namespace {

std::string specs_str(const std::vector<TensorSpec>& specs) {
  std::string s;
  for (const TensorSpec& spec : specs) {
    s += (s.empty() ? "" : ", ") + std::string(dtype_name(spec.dtype)) + spec.shape.str();
    if (!is_contiguous(spec.shape, spec.strides)) s += " strides " + spec.strides.str();
  }
  return s;
}

bool can_be_measured(const Kernel& kernel, const Stream& stream) {
  return stream.device.kind == DeviceKind::kCpu && kernel.collective < 0;
}

double middle(std::vector<double>& values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Runs within five standard deviations of the median, as the median of the distances from it tells them for a normal
// distribution; within a tenth of the median always.
std::vector<double> usual(std::vector<double> times) {
  const double median = middle(times);
  std::vector<double> distances;
  for (const double ns : times) distances.push_back(std::abs(ns - median));
  const double most = std::max(5 * 1.4826 * middle(distances), 0.1 * median);
  std::erase_if(times, [&](double ns) { return std::abs(ns - median) > most; });
  return times;
}

// Welford's update, of two sets of runs at once.
void add(KernelHistory& history, const KernelHistory& more) {
  if (history.runs == 0) {
    history = more;
    return;
  }
  const auto n = static_cast<double>(history.runs), m = static_cast<double>(more.runs);
  const double apart = more.mean_ns - history.mean_ns;
  history.mean_ns += apart * m / (n + m);
  history.squares += more.squares + apart * apart * n * m / (n + m);
  history.min_ns = std::min(history.min_ns, more.min_ns);
  history.max_ns = std::max(history.max_ns, more.max_ns);
  history.mean_ns = std::clamp(history.mean_ns, history.min_ns, history.max_ns);  // whatever was rounded
  history.runs = std::min(history.runs + more.runs, kMostRuns);
}

}  // namespace

double KernelHistory::std_ns() const { return runs > 1 ? std::sqrt(squares / static_cast<double>(runs - 1)) : 0; }

KernelSignature signature_of(const KernelQuery& query) {
  std::string attrs;
  for (const auto& [name, value] : query.attrs) attrs += (attrs.empty() ? "" : ", ") + name + " = " + attr_str(value);
  for (const int input : query.packed) attrs += fmt::format("{}packed input {}", attrs.empty() ? "" : ", ", input);
  const DeviceId device{0, query.device.kind, query.device.index};
  return {query.op, std::move(attrs), specs_str(query.inputs) + " -> " + specs_str(query.outputs), device.str(),
          query.cores};
}

std::vector<KernelHistory> measured_runs(const Plan& plan, std::span<const TraceEvent> events) {
  std::map<int, std::vector<double>> by_kernel;
  for (const TraceEvent& event : events) {
    if (event.wait || event.left_out || event.kernel < 0 || event.kernels != 1) continue;
    if (can_be_measured(plan.kernels[event.kernel], plan.streams[event.stream]))
      by_kernel[event.kernel].push_back(static_cast<double>(event.end_ns - event.begin_ns));
  }
  const std::vector<int> streams = streams_of_kernels(plan);
  std::map<KernelSignature, std::vector<double>> runs;
  for (const auto& [kernel, times] : by_kernel) {
    std::vector<double>& all = runs[signature_of(query_of(plan, plan.kernels[kernel], plan.streams[streams[kernel]]))];
    all.insert(all.end(), times.begin(), times.end());
  }
  std::vector<KernelHistory> measured;
  for (auto& [kernel, times] : runs) {
    KernelHistory history;
    for (const double ns : usual(std::move(times)))
      add(history, {.kernel = kernel, .runs = 1, .mean_ns = ns, .min_ns = ns, .max_ns = ns});
    measured.push_back(std::move(history));
  }
  return measured;
}

void merge(std::vector<KernelHistory>& history, std::span<const KernelHistory> more) {
  std::map<KernelSignature, KernelHistory> all;
  for (const std::span<const KernelHistory> part : {std::span<const KernelHistory>(history), more}) {
    for (const KernelHistory& h : part) add(all[h.kernel], h);
  }
  history.clear();
  for (auto& [kernel, h] : all) history.push_back(std::move(h));
}

bool has_all(std::span<const KernelHistory> history, const Plan& plan) {
  const std::vector<int> streams = streams_of_kernels(plan);
  for (size_t k = 0; k < streams.size(); ++k) {
    if (streams[k] < 0 || !can_be_measured(plan.kernels[k], plan.streams[streams[k]])) continue;
    const KernelSignature signature = signature_of(query_of(plan, plan.kernels[k], plan.streams[streams[k]]));
    if (!std::ranges::binary_search(history, signature, {}, &KernelHistory::kernel)) return false;
  }
  return true;
}

CostTable::CostTable(const Machine& machine) {
  for (const KernelCost& cost : machine.kernels) {
    if (cost.name.find('*') != std::string::npos) {
      patterns_.push_back(&cost);
    } else {
      exact_.emplace(cost.name, &cost);
    }
  }
  for (const KernelHistory& h : machine.measured) measured_.emplace(h.kernel, h.mean_ns);
}

std::optional<double> CostTable::find(std::string_view name, const KernelQuery& query) const {
  const auto exact = exact_.find(name);
  const KernelCost* named = exact == exact_.end() ? nullptr : exact->second;
  for (const KernelCost* pattern : patterns_) {
    if (named != nullptr && named < pattern) break;
    if (!fits(pattern->name, name)) continue;
    named = pattern;
    break;
  }
  if (named != nullptr) return named->cost_ns;
  return measured(query);
}

std::optional<double> CostTable::measured(const KernelQuery& query) const {
  if (measured_.empty()) return std::nullopt;
  const auto known = measured_.find(signature_of(query));
  return known == measured_.end() ? std::nullopt : std::optional(known->second);
}

}  // namespace sluice::plan
