#pragma once
// The time of a device, lent to several by weights. Cores are lent for a kernel (core_lease.h); a whole device is lent
// for a turn, of which the holder says afterwards how long it was.
#include <cstdint>
#include <optional>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// Stride scheduling. Who has had the least time for its weight, of those who wait, has the next turn; so whoever always
// waits gets the time by its weight, however long its turns are. Who did not wait gets nothing for what it has missed.
//
// Thread safety: every method.
//
// Invariants
//  1. The mark of a member is the time that it has had over its weight. It rises by its turns alone, but for 2.
//  2. A member that begins to wait has a mark of at least that of the last turn.
//  3. At most `room` requests of a member wait.
class TimeLeases {
 public:
  struct Share {
    double weight = 1;
    uint64_t turns = 0;
    double seconds = 0;
    int waiting = 0;  // requests
  };

  // A new member's number. Throws kValue unless the weight is positive and finite and there is room for a request.
  int add(double weight, int room);
  // Asks for a turn. Waits while there is no room, and throws what check_interrupt() throws. False: closed.
  bool ask(int member);
  // Waits for a request, and gives a turn: the number of who has it. None: closed, and nobody waits any more.
  std::optional<int> take();
  // The turn is over, after so many seconds; it does not count where nothing was done in it.
  void give_back(int member, double seconds, bool counts = true);
  // Nobody may ask any more. Who waits is still served.
  void close();
  std::vector<Share> shares() const;

 private:
  struct Member {
    Share share;
    int room = 1;
    double mark = 0;
  };
  // Throws kIndex for who is not there.
  Member& at(int member) SLUICE_REQUIRES(mutex_);
  int next() const SLUICE_REQUIRES(mutex_);  // -1: nobody waits

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Member> members_ SLUICE_GUARDED_BY(mutex_);
  double last_ SLUICE_GUARDED_BY(mutex_) = 0;  // the mark of who has had the last turn, as it began
  bool closed_ SLUICE_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
