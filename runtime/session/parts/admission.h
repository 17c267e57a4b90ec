#pragma once
// Lets the steps of a session in: which submission gets the next number, when its inputs have a place, and which step
// starts next.
//
// Thread safety: none of its own. The lock of its session guards it.
//
// Invariants
//  1. Steps are numbered in the order in which they enter, and they start in that order.
//  2. At most max_in_flight() steps have entered and are not finished, apart from those of enter_started().
//  3. A step that has entered either has its input slots, or its inputs wait in the backlog until it has them. No more
//     steps wait there than the backlog holds.
//  4. Callers that wait for room stand in line, those of the highest priority first, and of these who came first. Only
//     the first in line may enter, and offer_room() wakes it whenever there may be room.
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace sluice {

class Admission {
 public:
  // A register that a feed produces: submitters write its slots.
  struct FedRegister {
    int reg = 0;
    uint64_t starts = 1;    // firings of its feed per step
    uint64_t writable = 0;  // firings whose slots may be written
  };
  // A caller that waits for room. It lies on the stack of its thread, so that waiting allocates nothing.
  struct Waiter : boost::intrusive::list_base_hook<> {
    explicit Waiter(int its_priority) : priority(its_priority) {}
    const int priority;
    ConditionVariable changed;  // it is first and there may be room, or there will never be
  };

  // `backlog`: steps whose inputs may wait for slots.
  Admission(std::vector<FedRegister> fed, int max_in_flight, size_t backlog)
      : fed_(std::move(fed)), max_in_flight_(max_in_flight), in_backlog_(backlog) {}

  int max_in_flight() const { return max_in_flight_; }
  uint64_t submitted() const { return submitted_; }
  uint64_t finished() const { return finished_; }
  uint64_t in_flight() const { return submitted_ - finished_; }
  // Steps that have got their start credits.
  uint64_t published() const { return published_; }
  bool all_published() const { return published() == submitted_; }

  // Room for a step, and the line of those who wait for it.
  bool has_slots(uint64_t step) const;
  bool has_capacity() const;
  bool may_enter(int priority) const { return has_capacity() && (line_.empty() || line_.front().priority < priority); }
  void stand_in_line(Waiter& waiter);
  // `entering`: it has found room. If it has not, the next in line is offered what it was woken for.
  void leave_line(Waiter& waiter, bool entering);
  bool may_enter(const Waiter& waiter) const { return &line_.front() == &waiter && has_capacity(); }
  void offer_room() {
    if (!line_.empty() && has_capacity()) line_.front().changed.notify_one();
  }
  // Wakes all who wait, because there will be no room for them.
  void wake_all();
  size_t waiting() const { return line_.size(); }

  // Gives the next step its number. REQUIRES: has_capacity().
  uint64_t enter() { return submitted_++; }
  // Numbers `n` steps that start at once and need no inputs.
  void enter_started(uint64_t n) {
    submitted_ += n;
    published_ = submitted_;
  }
  // The step that is next to finish is finished. The caller offers the room that this makes.
  void finish() { ++finished_; }
  // The slots of a register may be written for its feed's firings < `writable`.
  void set_writable(int reg, uint64_t writable);

  // The inputs of a step that has entered are in the backlog now. REQUIRES: there is a backlog.
  void put_in_backlog(uint64_t step) { in_backlog_[step % in_backlog_.size()] = true; }
  // They are in the step's slots now.
  void take_from_backlog(uint64_t step) { in_backlog_[step % in_backlog_.size()] = false; }
  // The step that is next to start lies in the backlog and has its slots.
  bool backlog_can_start() const;
  // The step starts. The caller offers the room that this makes in the backlog. REQUIRES: it is published(), the next.
  void publish(uint64_t step) { published_ = step + 1; }
  // One thread at a time starts what the backlog holds, and takes along what others bring meanwhile. False where
  // another thread is at it.
  bool begin_emptying_backlog() { return !std::exchange(emptying_, true); }
  void end_emptying_backlog() { emptying_ = false; }
  bool emptying_backlog() const { return emptying_; }
  // No submission is under way. Steps that lie in the backlog do not count: if the session ends they never start.
  bool none_is_entering() const;

  // Numbers begin anew. REQUIRES: nobody stands in line, and no submission is under way.
  void reset();

 private:
  std::vector<FedRegister> fed_;
  const int max_in_flight_;
  std::vector<bool> in_backlog_;  // per step % size: its inputs are all there
  uint64_t submitted_ = 0, published_ = 0, finished_ = 0;
  bool emptying_ = false;
  boost::intrusive::list<Waiter> line_;
};

}  // namespace sluice
