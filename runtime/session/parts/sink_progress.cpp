#include "runtime/session/parts/sink_progress.h"

#include <utility>

namespace sluice {

SinkProgress::SinkProgress(std::vector<Sink> sinks, uint64_t period)
    : sinks_(std::move(sinks)), period_(period), states_(sinks_.size()) {}

size_t SinkProgress::index_of(int actor) const {
  const auto is_it = [&](const Sink& sink) { return sink.actor == actor; };
  return static_cast<size_t>(std::find_if(sinks_.begin(), sinks_.end(), is_it) - sinks_.begin());
}

SinkProgress::Delivery SinkProgress::fire(int actor, uint64_t step) {
  const size_t index = index_of(actor);
  const Sink& sink = sinks_[index];
  State& state = states_[index];
  Delivery delivery;
  delivery.firing = state.fired++;
  delivery.part = delivery.firing % sink.per_step;
  delivery.first = state.next_step;
  if (sink.per_step > 1) {
    delivery.last = delivery.firing / sink.per_step;
  } else {
    // Each firing answers its share of the steps of a period, also when a later step has made several possible at once.
    delivery.last = std::min(step, (state.fired * period_ + sink.per_period - 1) / sink.per_period - 1);
  }
  delivery.complete = delivery.part + 1 == sink.per_step;
  return delivery;
}

void SinkProgress::deliver(int actor, const Delivery& delivery) {
  State& state = states_[index_of(actor)];
  if (delivery.complete) state.next_step = std::max(state.next_step, delivery.last + 1);
}

uint64_t SinkProgress::end(int actor) {
  State& state = states_[index_of(actor)];
  state.ended = true;
  return state.next_step;
}

uint64_t SinkProgress::delivered(uint64_t submitted) const {
  uint64_t least = submitted;
  for (const State& state : states_) least = state.ended ? least : std::min(least, state.next_step);
  return least;
}

}  // namespace sluice
