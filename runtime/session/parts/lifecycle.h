#pragma once
// Says how far a session is on its way: whether it takes steps, who is ending it, and why it ended.
//
//     open --end_data()--> its data ended
//     open, its data ended --begin_reset()--> resetting --begin_anew(), finish_ending()--> open
//     any of these --cancel()--> cancelled --close()--> closed
//     cancelled --abandon()--> abandoned --close()--> closed, and abandoned
//
// Thread safety: none of its own. The lock of its session guards it.
//
// Invariants
//  1. A session takes steps only while it is open and no actor of it was ended from outside.
//  2. One thread at a time ends the session: it stops, resets or abandons it, from begin_ending(), begin_reset() or
//     abandon() to finish_ending(). Others wait for it, or leave the session to it.
//  3. Once cancelled, a session takes no step again; once closed, nothing happens any more that callers could see.
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace sluice {

class Lifecycle {
 public:
  // REQUIRES: `session`, its name, outlives it.
  explicit Lifecycle(const std::string& session) : session_(session) {}

  bool takes_steps() const { return !cancelled_ && !data_ended_ && !resetting_ && failure_.ok(); }
  // Throws where it takes none, which `step` would have been.
  void check_takes_steps(uint64_t step) const;
  // Throws kRuntime once cancelled.
  void check_not_cancelled() const;

  // False where it had been cancelled before.
  bool cancel() { return !std::exchange(cancelled_, true); }
  bool cancelled() const { return cancelled_; }
  // A source has no more data: what was submitted comes to its end.
  void end_data() { data_ended_ = true; }
  bool data_ended() const { return data_ended_; }
  // How a step ended that `step` is, for want of data.
  Status end_of_data(uint64_t step) const;
  // An actor was ended from outside, or its successor could not begin. The last reason counts.
  void fail(Status failure) { failure_ = std::move(failure); }
  const Status& failure() const { return failure_; }

  // REQUIRES, like begin_reset() and abandon(): no thread is ending it.
  void begin_ending() { ending_ = true; }
  void finish_ending() { ending_ = resetting_ = false; }
  bool ending() const { return ending_; }
  void begin_reset() { ending_ = resetting_ = true; }
  // Steps count from 0 again: whoever waits for something of before has it.
  void count_reset() { ++resets_; }
  uint64_t resets() const { return resets_; }
  void begin_anew() { data_ended_ = false; }

  void abandon() { ending_ = abandoned_ = true; }
  bool abandoned() const { return abandoned_; }
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  const std::string& session_;
  bool cancelled_ = false, data_ended_ = false;
  bool ending_ = false, resetting_ = false;
  bool abandoned_ = false;  // its actors have not ended, and nobody waits for that
  bool closed_ = false;
  uint64_t resets_ = 0;
  Status failure_;
};

}  // namespace sluice
