#pragma once
// Traces of the sessions of a family: events by the numbers that callers know their steps by, and the steps' tags.
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"
#include "runtime/session/session.h"

namespace sluice {

struct FamilyTrace {
  struct Step {
    uint64_t step = 0;
    std::string tag;
    bool over = false;  // all its events have been told
  };
  std::vector<Trace> members;
  std::vector<TraceNames> names;  // of the members'
  std::vector<Step> steps;
};

// Thread safety: everything, from any thread.
class FamilyTracing {
 public:
  static constexpr size_t kNoted = 4096;  // steps that nobody has asked for; of older ones tags and ends are not told

  void set(std::vector<Session>& members, bool on);
  // After a submission: `step` of the member is part of the family's step `number`.
  void note(size_t member, uint64_t step, uint64_t number, std::string_view tag) {
    if (on_.load(std::memory_order_relaxed)) add({member, step, number, std::string(tag), false});
  }
  // Returns the events that have come since it was switched on, or the last call. `alone`: members number steps as the
  // family does.
  FamilyTrace take(std::vector<Session>& members, bool alone);
  void forget();  // steps count from 0 again

 private:
  struct Note {
    size_t member = 0;
    uint64_t step = 0, number = 0;
    std::string tag;
    bool over = false;
  };
  void add(Note note);

  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::deque<Note> notes_;                      // as submitted
  std::vector<std::vector<TraceEvent>> early_;  // per member: of steps that are about to be noted
};

}  // namespace sluice
