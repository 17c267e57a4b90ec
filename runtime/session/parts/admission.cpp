#include "runtime/session/parts/admission.h"

#include <algorithm>

namespace sluice {

bool Admission::has_slots(uint64_t step) const {
  return std::all_of(fed_.begin(), fed_.end(),
                     [&](const FedRegister& fed) { return (step + 1) * fed.starts <= fed.writable; });
}

bool Admission::has_capacity() const {
  if (in_flight() >= static_cast<uint64_t>(max_in_flight_)) return false;
  return has_slots(submitted_) || submitted_ - published() < in_backlog_.size();
}

void Admission::stand_in_line(Waiter& waiter) {
  const auto after_it =
      std::find_if(line_.begin(), line_.end(), [&](const Waiter& other) { return other.priority < waiter.priority; });
  line_.insert(after_it, waiter);
}

void Admission::leave_line(Waiter& waiter, bool entering) {
  line_.erase(line_.iterator_to(waiter));
  if (!entering) offer_room();
}

void Admission::wake_all() {
  for (Waiter& waiter : line_) waiter.changed.notify_one();
}

void Admission::set_writable(int reg, uint64_t writable) {
  std::find_if(fed_.begin(), fed_.end(), [&](const FedRegister& fed) { return fed.reg == reg; })->writable = writable;
  offer_room();
}

bool Admission::backlog_can_start() const {
  const uint64_t step = published();
  return step != submitted_ && in_backlog_[step % in_backlog_.size()] && has_slots(step);
}

bool Admission::none_is_entering() const {
  if (emptying_) return false;
  for (uint64_t step = published(); step < submitted_; ++step)
    if (in_backlog_.empty() || !in_backlog_[step % in_backlog_.size()]) return false;
  return true;
}

void Admission::reset() {
  submitted_ = published_ = finished_ = 0;
  in_backlog_.assign(in_backlog_.size(), false);
  for (FedRegister& fed : fed_) fed.writable = 0;
}

}  // namespace sluice
