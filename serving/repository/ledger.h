#pragma once
// The bytes that all models together need, against the server's limit.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace sluice::serving {

class Ledger {
  struct State;

 public:
  explicit Ledger(uint64_t limit);  // 0: none
  // Bytes that are taken as long as it lives; it may outlive the ledger.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share();
    uint64_t bytes() const { return bytes_; }

   private:
    friend class Ledger;
    std::shared_ptr<State> state_;
    uint64_t bytes_ = 0;
  };
  // Throws kUnavailable, naming the bytes, when they do not fit. `who`: "model 'm' version 2".
  Share take(const std::string& who, uint64_t bytes);
  bool fits(uint64_t bytes, uint64_t freed) const;  // when so many bytes more were free
  uint64_t used() const;

 private:
  struct State {
    mutable std::mutex mutex;
    uint64_t limit = 0, used = 0;
  };
  std::shared_ptr<State> state_;
};

}  // namespace sluice::serving
