// Waiting for transfers. The thread that waits for something of a rank reads its connection, so that no thread stands
// between. A connection stays with the reader that has left it for a millisecond, because that reader mostly comes back
// for the next token: to give it to the thread of the links and take it again would change the set of watched
// connections twice and wake up to three threads. After that time, or at once where others wait for that rank, the
// thread of the links reads it; so the end of a peer for which nobody waits is noticed a millisecond later.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/interrupt.h"
#include "streams/collective/links.h"

namespace sluice::collective {

// The part of a connection's reader, for a scope. REQUIRES: may_read(); the lock is held when it begins and ends.
class Links::Reading {
 public:
  Reading(Links& links, int rank, const Transfer& transfer) : links_(links), rank_(rank) {
    links_.peers_[rank_].reader = &transfer;
    links_.set_watched(rank_, false);
  }
  ~Reading() {
    Peer& peer = links_.peers_[rank_];
    peer.reader = nullptr;
    peer.reader_left = Clock::now();
    if (links_.may_read(peer) && peer.waiters == 0)
      links_.expect_readers();
    else
      links_.set_watched(rank_, true);
    if (links_.leaving_) links_.changed_.notify_all();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  Links& links_;
  const int rank_;
};

bool Links::may_read(const Peer& peer) const { return peer.socket.open() && failure_.ok() && !leaving_; }

bool Links::wait_done(std::unique_lock<std::mutex>& lock, Transfer& t, std::chrono::nanoseconds timeout) {
  const sluice::Deadline deadline(timeout);
  if (read_until_done(lock, t, timeout)) return true;
  Peer& peer = peers_[t.peer];
  if (peer.patient) flush(t.peer);
  struct Waiting {
    int& waiters;
    explicit Waiting(int& of) : waiters(++of) {}
    ~Waiting() { --waiters; }
  };
  const Waiting waiting(peer.waiters);
  return interruptible_wait(lock, changed_, deadline.left(), [&] { return !t.pending || !failure_.ok(); });
}

bool Links::read_until_done(std::unique_lock<std::mutex>& lock, Transfer& t, std::chrono::nanoseconds timeout) {
  const sluice::Deadline deadline(timeout);
  Peer& peer = peers_[t.peer];
  if (!t.pending || !may_read(peer) || peer.reader != nullptr) return !t.pending;
  const Reading reading(*this, t.peer, t);
  const collective::Deadline since = Clock::now();
  while (t.pending && may_read(peer)) {
    bool taken = false;
    try {
      taken = take(t.peer);
    } catch (...) {
      break_off();
    }
    if (!t.pending || !may_read(peer)) break;
    const std::chrono::nanoseconds left = deadline.left();
    if (left == std::chrono::nanoseconds::zero()) break;
    const std::chrono::nanoseconds longest = std::min(left, patience(t.peer, since));
    sleep(lock, peer, taken ? std::chrono::nanoseconds::zero() : longest);
  }
  return !t.pending;
}

// How long what waits for company still may, once somebody waits `since` then for an answer to it. A message that has
// waited long enough is sent.
std::chrono::nanoseconds Links::patience(int rank, collective::Deadline since) {
  Peer& peer = peers_[rank];
  if (!peer.patient) return std::chrono::nanoseconds::max();
  const collective::Deadline now = Clock::now();
  if (now < peer.patient_until) return peer.patient_until - now;
  if (since + kCompanyTime / 2 < peer.patient_until) peer.company = kAlone;  // it was waited for in vain
  flush(rank);
  return std::chrono::nanoseconds::max();
}

// Without the lock, until there are bytes or the reader is woken, and for a moment at most. With a time of zero it only
// lets others have the lock.
void Links::sleep(std::unique_lock<std::mutex>& lock, Peer& peer, std::chrono::nanoseconds longest) {
  struct Unlocked {
    std::unique_lock<std::mutex>& lock;
    Peer& peer;
    Unlocked(std::unique_lock<std::mutex>& held, Peer& of) : lock(held), peer(of) {
      peer.asleep = true;
      lock.unlock();
    }
    ~Unlocked() {
      lock.lock();
      peer.asleep = false;
    }
  };
  pollfd ends[] = {{peer.socket.descriptor(), POLLIN, 0}, {peer.nudge.descriptor(), POLLIN, 0}};
  const Unlocked meanwhile(lock, peer);
  if (longest == std::chrono::nanoseconds::zero()) return;
  const auto look = [&] {
    std::this_thread::yield();  // as often as it asks, since to ask is a system call
    return poll(ends, 2, 0) > 0;
  };
  const bool found = longest > std::chrono::nanoseconds(ShortWait::kLongestLookNs) && short_wait_.look(look);
  if (!found && !sleep_until_one(ends, longest)) return check_interrupt();
  if ((ends[1].revents & POLLIN) == 0) return;
  uint64_t nudges = 0;
  static_cast<void>(!read(ends[1].fd, &nudges, sizeof nudges));
}

// False when there was nothing for as long.
bool Links::sleep_until_one(std::span<pollfd> ends, std::chrono::nanoseconds longest) {
  constexpr std::chrono::milliseconds kSlice{50}, kLongSlice{1000};
  const auto limit = std::min<std::chrono::nanoseconds>(longest, interruptible() ? kSlice : kLongSlice);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  const timespec time{static_cast<time_t>(seconds.count()), static_cast<long>((limit - seconds).count())};
  const int64_t begin_ns = now_ns();
  const int ready = ppoll(ends.data(), ends.size(), &time, nullptr);
  short_wait_.slept(now_ns() - begin_ns);
  return ready > 0;
}

// Ends a transfer: the thread that waits for it goes on.
void Links::complete(Transfer& t) {
  t.pending = false;
  Peer& peer = peers_[t.peer];
  if (peer.reader == &t)
    wake(peer);
  else
    changed_.notify_all();
}

void Links::tell_all() {
  changed_.notify_all();
  for (Peer& peer : peers_) wake(peer);
}

void Links::wake(Peer& peer) {
  const uint64_t one = 1;
  if (peer.asleep) static_cast<void>(!write(peer.nudge.descriptor(), &one, sizeof one));
}

}  // namespace sluice::collective
