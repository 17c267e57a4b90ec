#include "runtime/family/family_trace.h"

#include <map>
#include <utility>

namespace sluice {

namespace {
constexpr size_t kMostEarly = 1 << 15;
}

void FamilyTracing::set(std::vector<Session>& members, bool on) {
  const std::lock_guard lock(mutex_);
  if (on && !on_.load()) {
    notes_.clear();
    early_.assign(members.size(), {});
  }
  on_.store(on);
  for (Session& member : members) member.set_trace(on, false);
}

void FamilyTracing::add(Note note) {
  const std::lock_guard lock(mutex_);
  if (notes_.size() == kNoted) notes_.pop_front();
  notes_.push_back(std::move(note));
}

FamilyTrace FamilyTracing::take(std::vector<Session>& members, bool alone) {
  const std::lock_guard lock(mutex_);
  FamilyTrace all;
  early_.resize(members.size());
  // Before the events are taken: whoever has fired has recorded it. Each member ends its steps in their order.
  std::vector<bool> open(members.size(), false);
  for (Note& note : notes_) {
    note.over = !open[note.member] && members[note.member].has_fired(note.step + 1);
    open[note.member] = !note.over;
  }
  std::vector<std::map<uint64_t, uint64_t>> numbers(members.size());
  for (const Note& note : notes_) numbers[note.member][note.step] = note.number;
  for (size_t m = 0; m < members.size(); ++m) {
    Trace trace = members[m].take_trace();
    std::vector<TraceEvent> events = std::exchange(early_[m], {});
    events.insert(events.end(), trace.events.begin(), trace.events.end());
    trace.events.clear();
    for (TraceEvent& event : events) {
      if (event.actor >= 0 && !alone) {
        const auto number = numbers[m].find(event.step);
        if (number == numbers[m].end()) {
          const bool to_come = numbers[m].empty() || event.step > numbers[m].rbegin()->first;
          if (to_come && early_[m].size() < kMostEarly) early_[m].push_back(event);
          continue;
        }
        event.step = number->second;
      }
      trace.events.push_back(event);
    }
    all.members.push_back(std::move(trace));
    all.names.push_back(members[m].trace_names());
  }
  std::map<uint64_t, FamilyTrace::Step> steps;  // a call of several parts is one, and over when all of them are
  for (const Note& note : notes_) {
    FamilyTrace::Step& step =
        steps.try_emplace(note.number, FamilyTrace::Step{note.number, note.tag, true}).first->second;
    step.over = step.over && note.over;
  }
  std::erase_if(notes_, [&](const Note& note) { return steps.at(note.number).over; });
  for (auto& [number, step] : steps) all.steps.push_back(std::move(step));
  return all;
}

void FamilyTracing::forget() {
  const std::lock_guard lock(mutex_);
  notes_.clear();
  early_.clear();
}

}  // namespace sluice
