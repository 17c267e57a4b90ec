// Waiting for transfers. Who waits for something of a rank reads its connection, so that no thread stands between.
#include <poll.h>
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
    links_.watch(rank_);
  }
  ~Reading() {
    Peer& peer = links_.peers_[rank_];
    peer.reader = nullptr;
    if (peer.socket.open()) links_.watch(rank_);
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
  return interruptible_wait(lock, changed_, deadline.left(), [&] { return !t.pending || !failure_.ok(); });
}

bool Links::read_until_done(std::unique_lock<std::mutex>& lock, Transfer& t, std::chrono::nanoseconds timeout) {
  const sluice::Deadline deadline(timeout);
  Peer& peer = peers_[t.peer];
  if (!t.pending || !may_read(peer) || peer.reader != nullptr) return !t.pending;
  const Reading reading(*this, t.peer, t);
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
    sleep(lock, peer, taken ? std::chrono::nanoseconds::zero() : left);
  }
  return !t.pending;
}

// Without the lock, until there are bytes or the reader is woken, and for a moment at most. Of zero: lets others have
// the lock.
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
  constexpr std::chrono::milliseconds kSlice{50}, kLongSlice{1000};
  const auto limit = std::min<std::chrono::nanoseconds>(longest, interruptible() ? kSlice : kLongSlice);
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  if (poll(ends, 2, static_cast<int>(milliseconds)) <= 0) return check_interrupt();
  if ((ends[1].revents & POLLIN) == 0) return;
  uint64_t nudges = 0;
  static_cast<void>(!read(ends[1].fd, &nudges, sizeof nudges));
}

// Of a transfer that is over: who waits for it goes on.
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
