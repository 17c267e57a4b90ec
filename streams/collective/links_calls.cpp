// The calls that ranks make on their links: transfers, and the calls they are part of.
#include <algorithm>

#include "base/interrupt.h"
#include "streams/collective/links.h"
#include "streams/collective/slots.h"

namespace sluice::collective {

// Throws when a transfer with this rank can no longer be. A rank may have missed the call and then left.
void Links::check_usable(int peer, Slot slot) {
  failure_.throw_if_error();
  const auto missed = missed_.find(call_of(slot));
  if (missed != missed_.end()) missed->second.throw_if_error();
  if (leaving_) fail_all(rank_, ErrorKind::kRuntime, fmt::format("rank {} has left", rank_));
  if (peers_[peer].left) still_wanted(peer);
  failure_.throw_if_error();
}

void Links::send(Transfer& t, int peer, Slot slot, const void* data, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  check_usable(peer, slot);
  t = {true, peer, slot, static_cast<char*>(const_cast<void*>(data)), bytes, true, false, {}};
  std::vector<Wanted>& wanted = peers_[peer].wanted;
  const auto at = first_of(wanted, slot);
  if (at == wanted.end()) {
    peers_[peer].sends.push_back(&t);
    return;
  }
  const uint64_t wanted_bytes = at->bytes;
  wanted.erase(at);
  put_data(peer, t, wanted_bytes);
}

void Links::receive(Transfer& t, int peer, Slot slot, void* data, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  check_usable(peer, slot);
  t = {false, peer, slot, static_cast<char*>(data), bytes, true, false, {}};
  peers_[peer].receives.push_back(&t);
  put_want(peer, slot, bytes, false);
}

bool Links::grant(Transfer& t, int peer, Slot slot, void* data, uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  if (!failure_.ok() || leaving_ || peers_[peer].left || missed_.contains(call_of(slot))) return false;
  try {
    t = {false, peer, slot, static_cast<char*>(data), bytes, true, true, {}};
    peers_[peer].receives.push_back(&t);
    put_want(peer, slot, bytes, true);
  } catch (...) {
    break_off();
  }
  return true;
}

void Links::forget(Transfer& t) noexcept {
  std::lock_guard lock(mutex_);
  Peer& peer = peers_[t.peer];
  std::erase(peer.receives, &t);
  if (peer.target == &t) peer.target = nullptr;
  t.pending = false;
}

bool Links::done(const Transfer& t) const {
  std::lock_guard lock(mutex_);
  return !t.pending;
}

bool Links::wanted(int peer, Slot slot) {
  std::lock_guard lock(mutex_);
  Peer& p = peers_[peer];
  const auto here = [&] { return first_of(p.wanted, slot) != p.wanted.end(); };
  try {
    // It may have come, and nobody have read it yet.
    if (failure_.ok() && !here()) take(peer);
  } catch (...) {
    break_off();
  }
  return failure_.ok() && (p.out.empty() || p.patient) && here();
}

void Links::wait(Transfer& t, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (std::exchange(t.ahead, false) && t.pending) check_usable(t.peer, t.slot);
  bool done = false;
  try {
    done = wait_done(lock, t, timeout);
  } catch (...) {
    fail_all(rank_, ErrorKind::kCancelled, fmt::format("rank {} was interrupted", rank_));
    throw;
  }
  if (!done)
    fail_all(
        t.peer, ErrorKind::kTimeout,
        fmt::format("rank {} waited {} ms for rank {}, which is alive; all ranks must make the same calls in the same "
                    "order",
                    rank_, timeout.count(), t.peer));
  if (t.pending) failure_.throw_if_error();
  t.status.throw_if_error();
}

void Links::withdraw(Transfer& t) noexcept {
  std::lock_guard lock(mutex_);
  if (t.pending) fail_all(rank_, ErrorKind::kRuntime, fmt::format("rank {} gave up what it had begun", rank_));
  t.pending = false;
}

void Links::miss(Slot call, const std::vector<int>& ranks, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok() || leaving_) return;
  const Status status(ErrorKind::kRuntime, fmt::format("rank {} takes no part: {}", rank_, text));
  missed(call_of(call), status);
  for (const int r : ranks) {
    Out out;
    out.text = status.message().substr(0, kMostText);
    out.header = {FrameKind::kMiss, 0, call, out.text.size()};
    if (r != rank_) put(r, std::move(out));
  }
}

// Ends this call's transfers, as far as they have got.
void Links::missed(Slot call, const Status& status) {
  if (useless(call) || !missed_.emplace(call, status).second) return;
  const auto of_call = [call](Slot slot) { return call_of(slot) == call; };
  const auto end = [&](Transfer* t) {
    if (!of_call(t->slot)) return false;
    t->pending = false;
    t->status = status;
    return true;
  };
  for (int r = 0; r < size(); ++r) {
    Peer& peer = peers_[r];
    std::erase_if(peer.sends, end);
    std::erase_if(peer.receives, end);
    std::erase_if(peer.wanted, [&](const Wanted& w) { return of_call(w.slot); });
    if (peer.target != nullptr && end(peer.target)) peer.target = nullptr;  // the rest of it is read and forgotten
    for (size_t i = peer.out.size(); i-- > 0;) {
      Out& out = peer.out[i];
      if (out.transfer == nullptr || !end(out.transfer)) continue;
      if (i == 0 && peer.written > 0)
        keep_copy(out);
      else
        peer.out.erase(peer.out.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  tell_all();
}

void Links::over(Slot call) {
  std::lock_guard lock(mutex_);
  over_[call >> kChannelShift] = number_of(call) + 1;
  std::erase_if(missed_, [&](const auto& m) { return useless_by_now(m.first); });
}

void Links::close(Slot call) noexcept {
  constexpr uint32_t kAll = 1u << 30;  // as far ahead as numbers that go round can be told apart from those behind
  std::lock_guard lock(mutex_);
  try {
    over_[call >> kChannelShift] = number_of(call) + kAll;
  } catch (...) {
    break_off();
  }
  const auto of_channel = [&](Slot slot) { return useless_by_now(slot) && !point_to_point(slot); };
  for (Peer& peer : peers_) std::erase_if(peer.wanted, [&](const Wanted& w) { return of_channel(w.slot); });
  std::erase_if(missed_, [&](const auto& m) { return useless_by_now(m.first); });
}

// Nobody here waits for, or will send, what is left of the call.
bool Links::useless(Slot slot) const {
  return !point_to_point(slot) && (useless_by_now(slot) || missed_.contains(call_of(slot)));
}

bool Links::useless_by_now(Slot slot) const {
  const auto over = over_.find(slot >> kChannelShift);
  return over != over_.end() && before(number_of(slot), over->second);
}

}  // namespace sluice::collective
