#include "memory/time_lease.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/interrupt.h"

namespace sluice {

int TimeLeases::add(double weight, int room) {
  SLUICE_CHECK(std::isfinite(weight) && weight > 0, "shares: weight: {}; must be a positive number", weight);
  SLUICE_CHECK(room > 0, "shares: room for {} requests; must be at least one", room);
  const MutexLock lock(mutex_);
  Member member;
  member.share.weight = weight;
  member.room = room;
  member.mark = last_;
  members_.push_back(member);
  return static_cast<int>(members_.size()) - 1;
}

TimeLeases::Member& TimeLeases::at(int member) {
  SLUICE_CHECK_KIND(kIndex, member >= 0 && member < static_cast<int>(members_.size()),
                    "shares: member {}: not there; there are {}", member, members_.size());
  return members_[static_cast<size_t>(member)];
}

bool TimeLeases::ask(int member) {
  MutexLock lock(mutex_);
  at(member);
  interruptible_wait(lock, changed_, kWaitForever,
                     [&]() SLUICE_REQUIRES(mutex_) { return closed_ || at(member).share.waiting < at(member).room; });
  if (closed_) return false;
  Member& asking = at(member);
  if (asking.share.waiting++ == 0) asking.mark = std::max(asking.mark, last_);
  changed_.notify_all();
  return true;
}

int TimeLeases::next() const {
  int first = -1;
  for (size_t m = 0; m < members_.size(); ++m)
    if (members_[m].share.waiting > 0 && (first < 0 || members_[m].mark < members_[static_cast<size_t>(first)].mark))
      first = static_cast<int>(m);
  return first;
}

std::optional<int> TimeLeases::take() {
  MutexLock lock(mutex_);
  interruptible_wait(lock, changed_, kWaitForever, [&]() SLUICE_REQUIRES(mutex_) { return closed_ || next() >= 0; });
  const int member = next();
  if (member < 0) return std::nullopt;
  --at(member).share.waiting;
  last_ = std::max(last_, at(member).mark);
  changed_.notify_all();
  return member;
}

void TimeLeases::give_back(int member, double seconds, bool counts) {
  const MutexLock lock(mutex_);
  Member& held = at(member);
  const double spent = std::isfinite(seconds) ? std::max(seconds, 0.0) : 0.0;
  held.share.turns += counts;
  held.share.seconds += spent;
  held.mark += spent / held.share.weight;
}

void TimeLeases::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::vector<TimeLeases::Share> TimeLeases::shares() const {
  const MutexLock lock(mutex_);
  std::vector<Share> shares;
  for (const Member& member : members_) shares.push_back(member.share);
  return shares;
}

}  // namespace sluice
