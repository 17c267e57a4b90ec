#include "serving/http/places.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>

#include "serving/core/log.h"
#include "serving/http/response_head.h"

namespace sluice::serving {

void Places::start_idling(Seat& seat) {
  if (seat.idle || seat.kind == Kind::kNone) return;
  std::list<Seat*>& list = idlers(seat);
  seat.at = list.insert(list.end(), &seat);
  seat.idle = true;
}

void Places::stop_idling(Seat& seat) {
  if (!seat.idle) return;
  idlers(seat).erase(seat.at);
  seat.idle = false;
}

Places::SeatPtr Places::give_away(std::list<Seat*>& from) {
  if (from.empty()) return nullptr;
  Seat& seat = *from.front();
  stop_idling(seat);
  --(seat.kind == Kind::kOwn ? own_ : for_health_);
  seat.kind = Kind::kNone;
  return all_.at(&seat);
}

// Once, until there is room again.
void Places::tell(bool& told, const char* what) {
  if (told) return;
  told = true;
  log_warning(fmt::format("http: all {} connections that --max-connections allows are there: {}", most_, what));
}

Places::Kind Places::enter(const SeatPtr& seat) {
  SeatPtr gone;
  Kind kind = Kind::kOwn;
  {
    const std::lock_guard lock(mutex_);
    if (own_ >= most_ && (gone = give_away(idle_)) != nullptr)
      tell(told_of_idle_, "those without a request are closed for new ones");
    if (own_ < most_) {
      ++own_;
    } else {
      tell(told_of_none_, "each has a request, so others are answered 503, except health checks");
      if (for_health_ >= kForHealth) gone = give_away(idle_for_health_);
      if (for_health_ >= kForHealth) return Kind::kNone;
      kind = Kind::kHealth;
      ++for_health_;
    }
    seat->kind = kind;
    all_.emplace(seat.get(), seat);
    most_at_once_ = std::max(most_at_once_, all_.size());
    surge_ = surge_ || all_.size() >= kSurge;
    start_idling(*seat);
  }
  if (gone != nullptr) gone->close(false);
  return kind;
}

bool Places::leave(const SeatPtr& seat) {
  const std::lock_guard lock(mutex_);
  stop_idling(*seat);
  if (seat->kind == Kind::kOwn) --own_;
  if (seat->kind == Kind::kHealth) --for_health_;
  seat->kind = Kind::kNone;
  if (own_ < most_ - most_ / 8) told_of_idle_ = told_of_none_ = false;
  all_.erase(seat.get());
  if (all_.empty()) none_left_.notify_all();
  if (!surge_ || all_.size() > most_at_once_ / 8) return false;
  most_at_once_ = all_.size();
  surge_ = most_at_once_ > kSurge / 8;
  return true;
}

Places::Kind Places::busy(Seat& seat) {
  const std::lock_guard lock(mutex_);
  stop_idling(seat);
  return seat.kind;
}

void Places::idle(Seat& seat) {
  const std::lock_guard lock(mutex_);
  start_idling(seat);
}

std::vector<Places::SeatPtr> Places::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<SeatPtr> seats;
  for (const auto& [seat, owner] : all_) seats.push_back(owner);
  return seats;
}

size_t Places::count() const {
  const std::lock_guard lock(mutex_);
  return all_.size();
}

size_t Places::idle_count() const {
  const std::lock_guard lock(mutex_);
  return idle_.size() + idle_for_health_.size();
}

bool Places::wait_for_none(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return none_left_.wait_for(lock, timeout, [this] { return all_.empty(); });
}

void tell_no_place(int socket) {
  static const std::string kText = no_place_answer();
  std::array<char, 4096> asked{};  // what is not read would take the answer along
  static_cast<void>(::recv(socket, asked.data(), asked.size(), MSG_DONTWAIT));
  static_cast<void>(::send(socket, kText.data(), kText.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace sluice::serving
