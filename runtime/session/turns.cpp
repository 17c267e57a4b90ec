#include "runtime/session/turns.h"

#include <algorithm>

#include "base/error.h"
#include "base/interrupt.h"

namespace sluice {
namespace {

constexpr std::chrono::nanoseconds kMoment = std::chrono::milliseconds(20);

}  // namespace

// Stands in line for as long as it lives.
class Turns::InLine {
 public:
  explicit InLine(Turns& turns) SLUICE_REQUIRES(turns.mutex_) : turns_(turns), before_(turns.last_) {
    (before_ != nullptr ? before_->after_ : turns.first_) = this;
    turns.last_ = this;
  }
  ~InLine() SLUICE_UNCHECKED_LOCKS {  // it ends before the lock that it was made under
    (before_ != nullptr ? before_->after_ : turns_.first_) = after_;
    (after_ != nullptr ? after_->before_ : turns_.last_) = before_;
    turns_.changed_.notify_all();
  }
  InLine(const InLine&) = delete;
  InLine& operator=(const InLine&) = delete;

 private:
  Turns& turns_;
  InLine *before_, *after_ = nullptr;
};

Turns::Inside Turns::enter(const std::shared_ptr<Member>& member, std::chrono::nanoseconds timeout, bool try_only) {
  const Deadline deadline(timeout);
  MutexLock lock(mutex_);
  if (try_only && first_ != nullptr) return {};
  const InLine here(*this);
  const auto wait = [&](auto&& done) {
    SLUICE_CHECK_KIND(kTimeout, interruptible_wait(lock, changed_, deadline.left(), done),
                      "session '{}': its turn has not come after {} ms: other sessions that share its arenas are at "
                      "work; give it more time, or arenas of its own",
                      member->name(), std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  };
  wait([&]() SLUICE_REQUIRES(mutex_) { return first_ == &here; });
  if (const std::shared_ptr<Member> active = active_.lock(); active != member) {
    if (try_only && (inside_ > 0 || (active != nullptr && !active->at_rest()))) return {};
    wait([&]() SLUICE_REQUIRES(mutex_) { return inside_ == 0; });
    if (active != nullptr) {
      // One at rest has at most firings that are yet to be counted, which is no wait to speak of.
      const auto left = active->at_rest() ? std::max(deadline.left(), kMoment) : deadline.left();
      const MutexUnlock meanwhile(mutex_);
      active->come_to_rest(left);
    }
    active_ = member;
  }
  ++inside_;
  return Inside(this);
}

void Turns::leave() {
  const MutexLock lock(mutex_);
  --inside_;
  changed_.notify_all();
}

}  // namespace sluice
