#include "streams/collective/links.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread.h"
#include "streams/collective/slots.h"

namespace sluice::collective {
namespace {

constexpr uint64_t kMostRead = 256 << 10;  // bytes read under one lock
constexpr uint64_t kTogether = 4 << 10;    // bytes read before it is known what they are
constexpr std::chrono::milliseconds kGoodbyeTime{500};
constexpr uint32_t kWake = UINT32_MAX, kTimer = kWake - 1;  // events that are of no rank

}  // namespace

Links::Links(int rank, std::vector<Socket> sockets, std::chrono::milliseconds heartbeat)
    : rank_(rank), heartbeat_(heartbeat), peers_(sockets.size()), scratch_(kTogether) {
  SLUICE_CHECK(heartbeat.count() >= 10, "distributed: the heartbeat limit is {} ms; it must be at least 10",
               heartbeat.count());
  poll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  timer_ = Socket(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!poll_.open() || !wake_.open() || !timer_.open())
    sluice::fail(ErrorKind::kRuntime, "distributed: no events could be made: {}", std::strerror(errno));
  epoll_event event{EPOLLIN, {}};
  event.data.u32 = kWake;
  epoll_ctl(poll_.descriptor(), EPOLL_CTL_ADD, wake_.descriptor(), &event);
  event.data.u32 = kTimer;
  epoll_ctl(poll_.descriptor(), EPOLL_CTL_ADD, timer_.descriptor(), &event);
  const Deadline now = Clock::now();
  for (size_t r = 0; r < sockets.size(); ++r) {
    peers_[r].socket = std::move(sockets[r]);
    peers_[r].heard = peers_[r].sent = now;
    if (!peers_[r].socket.open()) continue;
    peers_[r].nudge = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!peers_[r].nudge.open())
      sluice::fail(ErrorKind::kRuntime, "distributed: no events could be made: {}", std::strerror(errno));
    event.data.u32 = static_cast<uint32_t>(r);
    epoll_ctl(poll_.descriptor(), EPOLL_CTL_ADD, peers_[r].socket.descriptor(), &event);
  }
  if (peers_.size() > 1) thread_ = start_thread("distributed", "sluice-links", [this] { serve(); });
}

Links::~Links() { leave({}); }

void Links::serve() {
  try {
    serve_all();
  } catch (...) {
    std::lock_guard lock(mutex_);
    break_off();
  }
}

// No memory: nothing can be sent any more, so the connections end.
void Links::break_off() noexcept {
  if (failure_.ok()) failure_ = Status::from_current_exception();
  for (Peer& peer : peers_) {
    if (peer.socket.open()) shutdown(peer.socket.descriptor(), SHUT_RDWR);
    if (peer.reader == nullptr) peer.socket.close();
  }
  tell_all();
}

void Links::serve_all() {
  const std::chrono::milliseconds tick =
      std::clamp(heartbeat_ / 5, std::chrono::milliseconds(2), std::chrono::milliseconds(1000));
  std::vector<epoll_event> events(peers_.size() + 2);
  Deadline last = Clock::now();
  while (!stop_.load(std::memory_order_acquire)) {
    const int n =
        epoll_wait(poll_.descriptor(), events.data(), static_cast<int>(events.size()), static_cast<int>(tick.count()));
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u32 == kWake) continue;
      if (events[i].data.u32 == kTimer) {
        std::lock_guard lock(mutex_);
        watch_abandoned();
        continue;
      }
      const int rank = static_cast<int>(events[i].data.u32);
      for (int turn = 0; turn < 16; ++turn) {  // then it is the others' turn
        std::lock_guard lock(mutex_);
        flush(rank);
        if (peers_[rank].reader != nullptr || !take(rank)) break;
      }
      if ((events[i].events & EPOLLHUP) != 0) std::this_thread::yield();  // the reader, if there is one, sees to it
    }
    const Deadline now = Clock::now();
    if (now - last < tick) continue;
    std::lock_guard lock(mutex_);
    // It was this process that was stopped; what the others said meanwhile comes next.
    if (now - last > heartbeat_ / 2) {
      for (Peer& peer : peers_) peer.heard = now;
    }
    last = now;
    beat(now);
  }
}

void Links::beat(Deadline now) {
  for (int r = 0; r < size(); ++r) {
    Peer& peer = peers_[r];
    if (!peer.socket.open()) continue;
    if (!leaving_ && (peer.out.empty() || peer.patient) && now - peer.sent >= heartbeat_ / 5) put(r, {});
    if (!peer.watched && has_bytes(peer.socket)) peer.heard = now;  // that its reader has not come to
    if (failure_.ok() && !leaving_ && !peer.left && now - peer.heard > heartbeat_)
      fail_all(
          r, ErrorKind::kTimeout,
          fmt::format("rank {} does not answer: nothing was heard from it for {} ms; it is stopped, hung or cut off", r,
                      heartbeat_.count()));
  }
}

bool Links::take(int rank) {
  Peer& peer = peers_[rank];
  if (!peer.socket.open()) return false;
  // The rest of what is large goes where it is wanted. All else is read together, as far as it has come.
  const bool direct =
      failure_.ok() && peer.target != nullptr && peer.read >= sizeof(Header) && left_of(peer) > kTogether;
  char* const to = direct ? peer.target->data + (peer.read - sizeof(Header)) : scratch_.data();
  const int64_t n = read_some(peer.socket, to, direct ? std::min(left_of(peer), kMostRead) : kTogether);
  if (n < 0) return false;
  if (n == 0) {
    lost(rank);
    return false;
  }
  peer.heard = Clock::now();
  accept(rank, to, static_cast<uint64_t>(n));
  return true;
}

// The bytes that are still to come of the frame whose header is here.
uint64_t Links::left_of(const Peer& peer) {
  return (peer.in.kind == FrameKind::kWant ? 0 : peer.in.bytes) - (peer.read - sizeof(Header));
}

// Bytes that have come, of any number of frames. Those of a failed job are of no use.
void Links::accept(int rank, const char* bytes, uint64_t n) {
  Peer& peer = peers_[rank];
  while (n > 0 && failure_.ok()) {
    const bool header = peer.read < sizeof(Header);
    char* to = reinterpret_cast<char*>(&peer.in) + peer.read;
    uint64_t part = sizeof(Header) - peer.read;
    if (!header) {
      const uint64_t done = peer.read - sizeof(Header);
      part = left_of(peer);
      to = peer.in.kind != FrameKind::kData ? peer.text.data() + done
           : peer.target != nullptr         ? peer.target->data + done
                                            : nullptr;
    }
    part = std::min(part, n);
    if (to != nullptr && to != bytes) std::memcpy(to, bytes, part);
    peer.read += part;
    bytes += part;
    n -= part;
    if (header && peer.read == sizeof(Header)) begin_frame(rank);
    if (failure_.ok() && peer.read >= sizeof(Header) && left_of(peer) == 0) end_frame(rank);
  }
}

void Links::begin_frame(int rank) {
  Peer& peer = peers_[rank];
  const Header& in = peer.in;
  peer.target = nullptr;
  switch (in.kind) {
    case FrameKind::kWant: return;
    case FrameKind::kData: {
      const auto at = first_of(peer.receives, in.slot);
      if (at == peer.receives.end() && useless(in.slot)) return;
      if (at == peer.receives.end() || (*at)->bytes != in.bytes) break;
      peer.target = *at;
      peer.receives.erase(at);
      return;
    }
    case FrameKind::kAlive:
    case FrameKind::kBye:
    case FrameKind::kMiss:
    case FrameKind::kFail:
      if (in.bytes > kMostText) break;
      peer.text.assign(in.bytes, '\0');
      return;
  }
  fail_all(
      rank, ErrorKind::kRuntime,
      fmt::format("rank {} sent what nobody asked for: {} bytes; do all ranks run the same version?", rank, in.bytes));
}

void Links::end_frame(int rank) {
  Peer& peer = peers_[rank];
  peer.read = 0;
  switch (peer.in.kind) {
    case FrameKind::kAlive: break;
    case FrameKind::kWant: {
      const auto at = first_of(peer.sends, peer.in.slot);
      if (at != peer.sends.end()) {
        Transfer& transfer = **at;
        peer.sends.erase(at);
        put_data(rank, transfer, peer.in.bytes);
      } else if (!useless(peer.in.slot)) {
        peer.wanted.push_back({peer.in.slot, peer.in.bytes});
      }
      break;
    }
    case FrameKind::kData:
      if (Transfer* const target = std::exchange(peer.target, nullptr); target != nullptr) complete(*target);
      break;
    case FrameKind::kMiss: missed(call_of(peer.in.slot), Status(ErrorKind::kRuntime, peer.text)); break;
    case FrameKind::kFail: {
      const bool known = peer.in.slot <= static_cast<uint64_t>(kLastErrorKind);
      fail_all(peer.in.rank, known ? static_cast<ErrorKind>(peer.in.slot) : ErrorKind::kRuntime, peer.text);
      break;
    }
    case FrameKind::kBye: {
      peer.left = true;
      const bool waited_for =
          std::any_of(peer.receives.begin(), peer.receives.end(), [](const Transfer* t) { return !t->ahead; });
      if (!peer.sends.empty() || waited_for) still_wanted(rank);
      break;
    }
  }
}

void Links::still_wanted(int left) {
  fail_all(left, ErrorKind::kRuntime,
           fmt::format("rank {} has left while rank {} still wants something of it; all ranks must make the same calls",
                       left, rank_));
}

void Links::lost(int rank) {
  Peer& peer = peers_[rank];
  if (peer.asleep) return wake(peer);  // whoever sleeps at the connection sees it too
  epoll_ctl(poll_.descriptor(), EPOLL_CTL_DEL, peer.socket.descriptor(), nullptr);
  peer.socket.close();
  peer.out.clear();
  tell_all();
  if (failure_.ok() && !leaving_ && !peer.left)
    fail_all(rank, ErrorKind::kRuntime,
             fmt::format("rank {} is gone: its connection closed without a goodbye; it crashed or was killed", rank));
}

void Links::put(int rank, Out out) {
  Peer& peer = peers_[rank];
  if (!peer.socket.open()) return;
  peer.out.push_back(std::move(out));
  if (std::exchange(peer.patient, false)) peer.company = std::max(peer.company, 0);
  if (!peer.blocked) flush(rank);
}

void Links::put_want(int rank, Slot slot, uint64_t bytes, bool patient) {
  Peer& peer = peers_[rank];
  Out out;
  out.header = {FrameKind::kWant, 0, slot, bytes};
  if (!patient || peer.company < 0) {
    if (patient) ++peer.company;
    return put(rank, std::move(out));
  }
  if (!peer.socket.open()) return;
  if (peer.out.empty()) {
    peer.patient = true;
    peer.patient_until = Clock::now() + kCompanyTime;
  }
  peer.out.push_back(std::move(out));
}

void Links::put_data(int rank, Transfer& transfer, uint64_t wanted) {
  if (wanted != transfer.bytes) {
    fail_all(rank_, ErrorKind::kValue,
             fmt::format("rank {} has {} bytes for rank {}, which expects {}; all ranks must make the same call with "
                         "equal shapes and dtypes",
                         rank_, transfer.bytes, rank, wanted));
    return;
  }
  Out out;
  out.header = {FrameKind::kData, 0, transfer.slot, transfer.bytes};
  out.transfer = &transfer;
  put(rank, std::move(out));
}

void Links::flush(int rank) {
  Peer& peer = peers_[rank];
  peer.patient = false;
  const auto body_of = [](const Out& out) { return out.header.kind == FrameKind::kWant ? 0 : out.header.bytes; };
  while (!peer.out.empty() && peer.socket.open()) {
    // Several frames together, as far as they have not been written yet.
    constexpr size_t kMostFrames = 8;
    std::array<iovec, 2 * kMostFrames> pieces;
    size_t used = 0;
    uint64_t written = peer.written;
    const auto add = [&](void* data, uint64_t bytes) {
      const uint64_t skipped = std::min(written, bytes);
      written -= skipped;
      if (bytes > skipped) pieces[used++] = {static_cast<char*>(data) + skipped, bytes - skipped};
    };
    for (size_t i = 0; i < std::min(peer.out.size(), kMostFrames); ++i) {
      Out& out = peer.out[i];
      add(&out.header, sizeof(Header));
      add(out.transfer != nullptr ? out.transfer->data : out.text.data(), body_of(out));
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = used;
    const ssize_t n = sendmsg(peer.socket.descriptor(), &message, MSG_NOSIGNAL);
    if (n < 0) {
      const bool full = errno == EAGAIN || errno == EINTR;
      if (full != peer.blocked) {
        peer.blocked = full;
        watch(rank);
      }
      if (!full) peer.out.clear();  // the end of the connection is noticed where it is read
      return;
    }
    peer.written += static_cast<uint64_t>(n);
    peer.sent = Clock::now();
    auto next = peer.out.begin();
    for (; next != peer.out.end() && peer.written >= sizeof(Header) + body_of(*next); ++next) {
      peer.written -= sizeof(Header) + body_of(*next);
      if (next->transfer != nullptr) complete(*next->transfer);
    }
    peer.out.erase(peer.out.begin(), next);
  }
  if (peer.blocked) {
    peer.blocked = false;
    watch(rank);
  }
  if (leaving_ && peer.socket.open()) shutdown(peer.socket.descriptor(), SHUT_WR);
}

void Links::watch(int rank) {
  Peer& peer = peers_[rank];
  epoll_event event{};
  if (peer.watched) event.events |= EPOLLIN;
  if (peer.blocked) event.events |= EPOLLOUT;
  event.data.u32 = static_cast<uint32_t>(rank);
  epoll_ctl(poll_.descriptor(), EPOLL_CTL_MOD, peer.socket.descriptor(), &event);
}

void Links::set_watched(int rank, bool watched) {
  Peer& peer = peers_[rank];
  if (peer.watched == watched || !peer.socket.open()) return;
  peer.watched = watched;
  watch(rank);
}

// Watches all connections, since nobody will come back to read them.
void Links::watch_all() {
  for (int r = 0; r < size(); ++r)
    if (peers_[r].reader == nullptr) set_watched(r, true);
}

// A reader has left: if none has come back in time, the thread of the links takes over.
void Links::expect_readers() {
  if (std::exchange(timer_runs_, true)) return;
  const itimerspec time{{}, {0, std::chrono::nanoseconds(kReturnTime).count()}};
  timerfd_settime(timer_.descriptor(), 0, &time, nullptr);
}

void Links::watch_abandoned() {
  uint64_t times = 0;
  static_cast<void>(!read(timer_.descriptor(), &times, sizeof times));
  timer_runs_ = false;
  const Deadline now = Clock::now();
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[r];
    if (peer.watched || peer.reader != nullptr || !peer.socket.open()) continue;
    if (now - peer.reader_left >= kReturnTime / 2)
      set_watched(r, true);
    else
      expect_readers();
  }
}

// The rest of a frame comes from a copy, because its memory is no longer ours.
void Links::keep_copy(Out& out) {
  out.text.assign(out.transfer->data, out.transfer->bytes);
  out.transfer = nullptr;
}

void Links::fail_all(int culprit, ErrorKind kind, const std::string& text) {
  if (!failure_.ok()) return;
  failure_ = Status(kind, text);
  failed_rank_ = culprit;
  log(LogLevel::kInfo, LogArea::kStreams, "distributed: rank {}: {}", rank_, text);
  for (int r = 0; r < size(); ++r) {
    Peer& peer = peers_[r];
    peer.target = nullptr;
    if (!peer.socket.open()) continue;
    if (peer.out.size() > 1) peer.out.erase(peer.out.begin() + 1, peer.out.end());
    if (!peer.out.empty() && peer.out.front().transfer != nullptr) keep_copy(peer.out.front());
    Out out;
    out.text = text.substr(0, kMostText);
    out.header = {FrameKind::kFail, culprit, static_cast<uint64_t>(kind), out.text.size()};
    put(r, std::move(out));
  }
  watch_all();
  tell_all();
}

void Links::fail(const std::string& text) noexcept {
  std::lock_guard lock(mutex_);
  if (!leaving_) fail_all(rank_, ErrorKind::kRuntime, fmt::format("rank {} failed: {}", rank_, text));
}

void Links::leave(const std::string& failure) noexcept {
  if (!failure.empty()) fail(failure);
  {
    std::unique_lock lock(mutex_);
    if (leaving_) return;
    leaving_ = true;
    for (int r = 0; r < size(); ++r) {
      Out out;
      out.header.kind = FrameKind::kBye;
      put(r, std::move(out));
    }
    watch_all();
    tell_all();
    // The others close when they have read this.
    changed_.wait_for(lock, kGoodbyeTime, [&] {
      return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.socket.open(); });
    });
  }
  stop_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  if (write(wake_.descriptor(), &one, sizeof one) < 0) stop_ = true;  // the thread looks at it soon in any case
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.reader != nullptr; });
  });
  for (Peer& peer : peers_) peer.socket.close();
}

Status Links::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

int Links::failed_rank() const {
  std::lock_guard lock(mutex_);
  return failed_rank_;
}

}  // namespace sluice::collective
