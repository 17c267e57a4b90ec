#pragma once
// Counts the places of connections. Only for the sources of this folder.
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace sluice::serving {

// So many connections have a place. If all are taken, the connection that has been without a request for longest gives
// its place to the one that comes. If none is without a request, a few more come in for a moment, to ask for health.
//
// Thread-safe.
class Places {
 public:
  static constexpr size_t kForHealth = 32, kSurge = 256;

  enum class Kind { kNone, kOwn, kHealth };

  // A connection.
  class Seat {
   public:
    Seat() = default;
    virtual ~Seat() = default;
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;
    // Any thread. Closes it: at once, or, unless `now`, when it has no request.
    virtual void close(bool now) = 0;
    virtual void close_half() = 0;  // when its request has not come whole

   private:
    friend class Places;
    Kind kind = Kind::kNone;
    bool idle = false;
    std::list<Seat*>::iterator at;  // where it is idle
  };
  using SeatPtr = std::shared_ptr<Seat>;

  explicit Places(int most) : most_(static_cast<size_t>(most)) {}

  // Without a request yet. kNone where there is no place for it, not even to ask for health.
  Kind enter(const SeatPtr& seat);
  // True when many of a surge of connections have gone, so that the system may have their memory back.
  bool leave(const SeatPtr& seat);
  // It has a request. kNone where its place has been given away.
  Kind busy(Seat& seat);
  // It waits for the next one.
  void idle(Seat& seat);

  std::vector<SeatPtr> all() const;
  size_t count() const;
  size_t idle_count() const;  // those without a request
  bool wait_for_none(std::chrono::milliseconds timeout);

 private:
  // With mutex_ held.
  void start_idling(Seat& seat);
  void stop_idling(Seat& seat);
  std::list<Seat*>& idlers(const Seat& seat) { return seat.kind == Kind::kOwn ? idle_ : idle_for_health_; }
  SeatPtr give_away(std::list<Seat*>& from);
  void tell(bool& told, const char* what);

  const size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable none_left_;
  std::map<Seat*, SeatPtr> all_;
  size_t own_ = 0, for_health_ = 0;
  std::list<Seat*> idle_, idle_for_health_;  // the longest first
  bool told_of_idle_ = false, told_of_none_ = false;
  bool surge_ = false;
  size_t most_at_once_ = 0;  // since memory was given back last
};

// Answers a connection for which there is none, without waiting.
void tell_no_place(int socket);

}  // namespace sluice::serving
