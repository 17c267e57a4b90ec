#pragma once
// Memory that clients make the server hold, from the first byte of a request until the last of its answer is gone: of
// all clients together, and of each request. Bytes are counted before they are used, so nothing is there uncounted.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::serving {

// Thread-safe.
class MemoryBudget {
 public:
  // Keeps memory that nobody uses, for the next who needs it.
  class Keeper {
   public:
    virtual ~Keeper() = default;
    virtual void let_go() = 0;  // of all of it; called without locks
  };

  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}
  uint64_t limit() const { return limit_; }
  // The bytes that requests and their answers hold. With kept() at most limit().
  uint64_t held() const {
    const uint64_t kept = kept_.load(std::memory_order_relaxed), all = all_.load(std::memory_order_relaxed);
    return all > kept ? all - kept : 0;
  }
  // The bytes that wait to be used again. It is let go of before a request is refused.
  uint64_t kept() const { return kept_.load(std::memory_order_relaxed); }
  void add(const std::weak_ptr<Keeper>& keeper);

  // For keepers: what somebody held is kept from now on; what is kept is held by somebody, or gone.
  void keep(uint64_t bytes) { kept_.fetch_add(bytes, std::memory_order_relaxed); }
  void use_kept(uint64_t bytes) { kept_.fetch_sub(bytes, std::memory_order_relaxed); }
  void free_kept(uint64_t bytes) {
    kept_.fetch_sub(bytes, std::memory_order_relaxed);
    give(bytes);
  }

 private:
  friend class MemoryShare;
  bool take(uint64_t bytes);
  bool take_now(uint64_t bytes);
  void give(uint64_t bytes) { all_.fetch_sub(bytes, std::memory_order_relaxed); }

  const uint64_t limit_;
  std::atomic<uint64_t> all_{0}, kept_{0};  // held and kept; kept
  std::mutex mutex_;
  std::vector<std::weak_ptr<Keeper>> keepers_;
};

// The share that one request holds of a budget; the rest is given back with it. Thread-safe.
class MemoryShare {
 public:
  // At most `limit` bytes, and the budget's.
  MemoryShare(std::shared_ptr<MemoryBudget> all, uint64_t limit);
  ~MemoryShare() { give(held()); }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;

  // To be called before so many more are used. Throws kTooLarge for what this request may never have, kOverloaded
  // where the others hold too much.
  void take(uint64_t bytes);
  bool try_take(uint64_t bytes) noexcept;
  void give(uint64_t bytes) {
    held_.fetch_sub(bytes, std::memory_order_relaxed);
    all_->give(bytes);
  }
  // For keepers, who had counted the bytes, or count them from now on.
  bool adopt(uint64_t bytes) noexcept;
  void hand_over(uint64_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  bool take_own(uint64_t bytes) noexcept;

  const std::shared_ptr<MemoryBudget> all_;
  const uint64_t limit_;
  std::atomic<uint64_t> held_{0};
};
using MemoryPtr = std::shared_ptr<MemoryShare>;  // null: not counted

// Bytes of a request's share, as long as it lives. One thread at a time.
class Held {
 public:
  Held() = default;
  Held(MemoryPtr share, uint64_t bytes) : share_(std::move(share)) { grow(bytes); }
  Held(Held&& other) noexcept : share_(std::move(other.share_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Held& operator=(Held&& other) noexcept {
    std::swap(share_, other.share_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Held() {
    if (bytes_ > 0) shrink(0);
  }

  void grow(uint64_t more) {  // throws as MemoryShare::take
    if (share_ == nullptr) return;
    share_->take(more);
    bytes_ += more;
  }
  void shrink(uint64_t bytes);  // to so many
  void hand_over() {            // to a keeper
    if (share_ != nullptr) share_->hand_over(std::exchange(bytes_, 0));
  }
  void release() { bytes_ = 0; }                   // to who gives them to the share
  void adopt(uint64_t bytes) { bytes_ += bytes; }  // that the share has adopted
  uint64_t bytes() const { return bytes_; }

 private:
  MemoryPtr share_;
  uint64_t bytes_ = 0;
};

// `data`, counted as long as somebody has it.
std::shared_ptr<void> counted(std::shared_ptr<void> data, Held held);

}  // namespace sluice::serving
