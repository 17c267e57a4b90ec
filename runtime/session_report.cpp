// What a session tells of itself.
#include <algorithm>

#include "runtime/session_core.h"

namespace sluice {

SessionStats SessionCore::stats() const {
  std::lock_guard lock(mutex_);
  if (runner_ == nullptr) return last_stats_;
  SessionStats stats;
  stats.submitted = submitted_;
  stats.finished = finished_;
  stats.failed = failed_;
  stats.in_flight = static_cast<int>(submitted_ - finished_);
  stats.max_in_flight = max_in_flight_;
  for (size_t a = 0; a < plan().actors.size(); ++a) {
    const int actor = static_cast<int>(a);
    stats.actors.push_back({plan().actors[a].name, runner_->firings(actor), runner_->waits(actor)});
  }
  return stats;
}

SessionMemory SessionCore::memory() const {
  const plan::Plan& plan = this->plan();
  SessionMemory memory;
  const auto space = [&](const std::string& name) -> SessionMemory::Space& {
    for (SessionMemory::Space& s : memory.spaces) {
      if (s.name == name) return s;
    }
    memory.spaces.push_back({name});
    return memory.spaces.back();
  };
  for (const plan::Space& s : plan.spaces) space(s.str());
  for (const plan::Arena& arena : plan.arenas) {
    space(plan.spaces[arena.space].str()).arenas += align_up(arena.bytes, plan::kAlignment);
  }
  for (const plan::Variable& variable : plan.variables) {
    space(plan.spaces[variable.space].str()).variables += align_up(variable.spec.extent_bytes(), plan::kAlignment);
  }
  for (const plan::Output& output : plan.outputs) {
    const uint64_t bytes = checked_bytes(output.view.spec.shape, dtype_size(output.view.spec.dtype));
    space("host").outputs += bytes * static_cast<uint64_t>(max_in_flight_);
  }
  return memory;
}

std::string SessionCore::wait_report() const {
  const std::shared_ptr<actors::Runner> runner = this->runner();
  return runner == nullptr ? std::string() : runner->wait_report(published_);
}

void SessionCore::set_trace(bool on) {
  if (const std::shared_ptr<actors::Runner> runner = this->runner()) runner->set_trace(on);
}

std::vector<TraceEvent> SessionCore::take_trace() {
  const std::shared_ptr<actors::Runner> runner = this->runner();
  if (runner == nullptr) return {};
  std::vector<TraceEvent> events = runner->take_trace();
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin_ns < b.begin_ns; });
  return events;
}

TraceNames SessionCore::trace_names() const {
  TraceNames names;
  for (const plan::Stream& stream : plan().streams) names.streams.push_back(stream.name);
  for (const plan::Actor& actor : plan().actors) names.actors.push_back(actor.name);
  for (const plan::Kernel& kernel : plan().kernels) names.kernels.push_back(kernel.name);
  return names;
}

}  // namespace sluice
