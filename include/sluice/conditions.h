#pragma once
// Conditions under which a source starts: by the clock, so often, while a switch is on, when something is complete. All
// of it is in this header.
//
//   Conditions when;
//   when.periodic(std::chrono::milliseconds(10)).count(100);
//   while (when.wait()) session.submit({camera.read()});
//
// Each condition gives tokens, and a start takes one of each, as a firing takes one of each of its inputs. So they
// join: a source with a period and a switch starts at the ticks at which the switch is on. That data is there, and that
// there is room for results, are conditions that every actor has.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "error.h"

namespace sluice::api {

// Thread-safe. A clock of the caller's may take the place of the machine's: at() and take() get the time and never
// wait.
class Conditions {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // A tick at once, and one each `period` from then on. One tick waits at most: what comes while it does is lost, so a
  // source that was late does not hurry. Ticks do not drift. Throws kValue for a period that is not positive.
  Conditions& periodic(Nanoseconds period) {
    if (period.count() <= 0)
      throw Error(ErrorKind::kValue,
                  "conditions: a period of " + std::to_string(period.count()) + " ns; must be above 0");
    return change([&] { period_ = period; });
  }
  // So many starts. Throws kValue for a number below 0.
  Conditions& count(int64_t starts) {
    if (starts < 0)
      throw Error(ErrorKind::kValue, "conditions: a count of " + std::to_string(starts) + "; must be 0 or more");
    return change([&] { left_ = starts; });
  }
  // Starts while it is on; set() throws it over.
  Conditions& switched(bool on) {
    return change([&] { on_ = on; });
  }
  // A start for each complete().
  Conditions& asynchronous() {
    return change([&] {
      if (!complete_) complete_ = 0;
    });
  }

  // Throws kValue where switched() was not asked for.
  void set(bool on) {
    change([&] {
      if (!on_) throw Error(ErrorKind::kValue, "conditions: set(): there is no switch; call switched() first");
      on_ = on;
    });
  }
  // Something is complete, which one start takes. Throws kValue where asynchronous() was not asked for.
  void complete() {
    change([&] {
      if (!complete_)
        throw Error(ErrorKind::kValue, "conditions: complete(): nothing waits for it; call asynchronous() first");
      ++*complete_;
    });
  }
  // Nothing starts any more.
  void stop() {
    change([&] { stopped_ = true; });
  }

  // Waits until all conditions hold, and takes their tokens: the caller starts. False: nothing will start any more. The
  // thread sleeps until the time has come, or somebody calls set(), complete() or stop().
  bool wait() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const Nanoseconds now = machine_now();
      const Next next = next_of(now);
      if (next.kind == Next::Kind::kNever) return false;
      if (next.kind == Next::Kind::kNow) {
        take_of(now);
        return true;
      }
      if (next.kind == Next::Kind::kAt) {
        changed_.wait_until(lock, std::chrono::steady_clock::time_point(next.at));
      } else {
        changed_.wait(lock);
      }
      ++wakes_;
    }
  }

  // When the next start can be: now, at a time, once somebody calls set(), complete() or stop(), or never.
  struct Next {
    enum class Kind { kNow, kAt, kOnCall, kNever };
    Kind kind = Kind::kNow;
    Nanoseconds at{0};
  };
  Next at(Nanoseconds now) const {
    const std::lock_guard lock(mutex_);
    return next_of(now);
  }
  // Starts, where all conditions hold at that time: false where they do not.
  bool take(Nanoseconds now) {
    const std::lock_guard lock(mutex_);
    if (next_of(now).kind != Next::Kind::kNow) return false;
    take_of(now);
    return true;
  }

  int64_t starts() const {
    const std::lock_guard lock(mutex_);
    return starts_;
  }
  // How often a wait() has been woken, also for nothing.
  int64_t wakes() const {
    const std::lock_guard lock(mutex_);
    return wakes_;
  }

 private:
  template <class Change>
  Conditions& change(const Change& what) {
    {
      const std::lock_guard lock(mutex_);
      what();
    }
    changed_.notify_all();
    return *this;
  }
  static Nanoseconds machine_now() {
    return std::chrono::duration_cast<Nanoseconds>(std::chrono::steady_clock::now().time_since_epoch());
  }

  Next next_of(Nanoseconds now) const {
    if (stopped_ || left_ == 0) return {Next::Kind::kNever};
    if (on_ == false || complete_ == 0) return {Next::Kind::kOnCall};
    if (period_ && first_ && now < due_) return {Next::Kind::kAt, due_};
    return {Next::Kind::kNow};
  }
  // REQUIRES: all conditions hold.
  void take_of(Nanoseconds now) {
    if (left_) --*left_;
    if (complete_) --*complete_;
    if (period_) {
      if (!first_) first_ = now;
      due_ = *first_ + *period_ * ((now - *first_) / *period_ + 1);  // the first tick behind now
    }
    ++starts_;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Nanoseconds> period_, first_;  // first_: the first tick
  Nanoseconds due_{0};
  std::optional<int64_t> left_, complete_;
  std::optional<bool> on_;
  bool stopped_ = false;
  int64_t starts_ = 0, wakes_ = 0;
};

}  // namespace sluice::api
