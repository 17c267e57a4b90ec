#include "serving/execution/step_recorder.h"

#include <utility>

namespace sluice::serving {

namespace {
constexpr auto kSoon = std::chrono::milliseconds(5);
constexpr auto kIdle = std::chrono::seconds(1);  // without a traced request the session stops recording
constexpr size_t kMostEvents = 1 << 16;          // of a step
}  // namespace

StepRecorder::Step StepRecorder::begin(api::Session& session, int instance, const Batch& batch) {
  Step step;
  step.trace->instance = instance;
  for (const JobPtr& job : batch.jobs) {
    const auto& trace = job->request.trace;
    if (trace == nullptr || !trace->with_steps) continue;
    step.trace->ids.push_back(trace->id());
    step.requests.push_back(trace->record());
  }
  if (!step.requests.empty() && !std::exchange(on_, true)) session.set_trace(true);
  return step;
}

void StepRecorder::submitted(uint64_t number, Step step) {
  if (step.requests.empty()) return;
  last_ = Clock::now();
  step.trace->number = number;
  steps_[number] = std::move(step);
}

std::optional<Clock::time_point> StepRecorder::collect(api::Session& session, Clock::time_point now) {
  if (!on_) return {};
  api::Trace trace = session.take_trace();
  std::shared_ptr<const std::vector<api::Trace::Plan>> plans;
  for (api::TraceEvent& event : trace.events) {
    const auto found = event.actor < 0 ? steps_.end() : steps_.find(event.step);
    if (found == steps_.end() || found->second.trace->events.size() >= kMostEvents) continue;
    if (plans == nullptr) plans = std::make_shared<const std::vector<api::Trace::Plan>>(trace.plans);
    found->second.trace->plans = plans;
    event.begin_ns += trace.begin_ns;
    event.end_ns += trace.begin_ns;
    found->second.trace->events.push_back(event);
  }
  for (const api::Trace::Step& step : trace.steps) {
    const auto found = step.over ? steps_.find(step.step) : steps_.end();
    if (found == steps_.end()) continue;
    for (const auto& request : found->second.requests) request->add(found->second.trace);
    steps_.erase(found);
  }
  if (!steps_.empty()) return now + kSoon;
  if (now < last_ + kIdle) return last_ + kIdle;
  on_ = false;
  session.set_trace(false);
  return {};
}

void StepRecorder::drop() {
  on_ = false;
  steps_.clear();
}

}  // namespace sluice::serving
