#pragma once
// Cores that a long kernel gives back between its parts where others wait for them.
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace sluice {

// The lease under which the calling thread runs a kernel, as the kernel sees it.
class CoreOffer {
 public:
  // Returns the one of the calling thread; null where it has no cores that it could give back.
  static CoreOffer* here() { return here_; }
  // Says if somebody waits for cores. Thread-safe: the kernel's other threads may ask.
  virtual bool wanted() const = 0;
  // The same, for a turn that began then and is worth what it takes to hand cores over.
  bool ends_turn(int64_t begin_ns) const { return wanted() && now_ns() - begin_ns >= turn_ns_; }
  // Gives the cores back and takes as many again, behind those who wait. Throws as CoreLeases::acquire() does.
  // REQUIRES: called on the thread that here() was asked on, while the kernel's other threads compute nothing.
  void give_way() { waited_ns_ += give(); }
  // Returns how long this thread has waited in give_way() since the last call.
  static int64_t take_waited_ns() { return std::exchange(waited_ns_, 0); }

  // An offer is that of this thread for a scope.
  class Scope {
   public:
    explicit Scope(CoreOffer& offer) : before_(std::exchange(here_, &offer)) {}
    ~Scope() { here_ = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CoreOffer* const before_;
  };

 protected:
  explicit CoreOffer(int64_t turn_ns) : turn_ns_(turn_ns) {}
  ~CoreOffer() = default;

 private:
  virtual int64_t give() = 0;  // returns how long it waited, in nanoseconds

  const int64_t turn_ns_;
  inline static thread_local CoreOffer* here_ = nullptr;
  inline static thread_local int64_t waited_ns_ = 0;
};

}  // namespace sluice
