// Work that runs once a step and work that runs in each of its micro-batches are programs of their own, in one order on
// every stream: first what the micro-batches need of the step, then the micro-batches, then what comes of all of them.
#include <algorithm>
#include <numeric>

#include "compiler/lowered.h"

namespace sluice::compiler {
namespace {

enum Phase : int8_t { kBeforeBatches, kInBatches, kAfterBatches };

std::vector<Phase> find_phases(const Lowered& lowered) {
  const std::vector<std::vector<int>> before = predecessors(lowered);
  const size_t n = lowered.tasks.size();
  const auto in_batches = [&](size_t task) { return lowered.tasks[task].every == 1; };
  std::vector<bool> needed(n, false);  // by a task of the micro-batches
  for (size_t t = n; t-- > 0;) {
    if (!in_batches(t) && !needed[t]) continue;
    for (int p : before[t]) needed[p] = true;
  }
  std::vector<Phase> phases(n);
  for (size_t t = 0; t < n; ++t) {
    phases[t] = in_batches(t) ? kInBatches : needed[t] ? kBeforeBatches : kAfterBatches;
    for (int p : before[t]) {
      const Phase least = phases[p] == kInBatches && !in_batches(t) ? kAfterBatches : phases[p];
      phases[t] = std::max(phases[t], least);
    }
  }
  return phases;
}

}  // namespace

void order_by_rate(Lowered& lowered) {
  const std::vector<Phase> phases = find_phases(lowered);
  if (std::is_sorted(phases.begin(), phases.end())) return;
  std::vector<int> order(phases.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return phases[a] < phases[b]; });
  std::vector<Task> tasks;
  std::vector<int> moved_to(order.size());
  for (int task : order) {
    moved_to[task] = static_cast<int>(tasks.size());
    tasks.push_back(std::move(lowered.tasks[task]));
  }
  lowered.tasks = std::move(tasks);
  for (int& writer : lowered.writer)
    if (writer >= 0) writer = moved_to[writer];
}

}  // namespace sluice::compiler
