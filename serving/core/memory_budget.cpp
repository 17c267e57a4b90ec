#include "serving/core/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "serving/core/error.h"

namespace sluice::serving {

void MemoryBudget::add(const std::weak_ptr<Keeper>& keeper) {
  const std::lock_guard lock(mutex_);
  std::erase_if(keepers_, [](const auto& gone) { return gone.expired(); });
  keepers_.push_back(keeper);
}

bool MemoryBudget::take_now(uint64_t bytes) {
  uint64_t all = all_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || all > limit_ - bytes) return false;
  } while (!all_.compare_exchange_weak(all, all + bytes, std::memory_order_relaxed));
  return true;
}

bool MemoryBudget::take(uint64_t bytes) {
  if (take_now(bytes)) return true;
  if (bytes > limit_ || kept() == 0) return false;
  std::vector<std::weak_ptr<Keeper>> keepers;
  {
    const std::lock_guard lock(mutex_);
    keepers = keepers_;
  }
  for (const auto& weak : keepers)
    if (const auto keeper = weak.lock()) keeper->let_go();
  return take_now(bytes);
}

MemoryShare::MemoryShare(std::shared_ptr<MemoryBudget> all, uint64_t limit)
    : all_(std::move(all)), limit_(std::min(limit, all_->limit())) {}

bool MemoryShare::take_own(uint64_t bytes) noexcept {
  uint64_t held = held_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || held > limit_ - bytes) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  return true;
}

void MemoryShare::take(uint64_t bytes) {
  if (!take_own(bytes))
    throw Error(Code::kTooLarge,
                fmt::format("request: it and its answer take more than the {} bytes of memory that one may have; send "
                            "less, or binary data instead of JSON",
                            limit_));
  if (all_->take(bytes)) return;
  hand_over(bytes);
  throw Error(Code::kOverloaded, "request: those that are under way hold all memory for requests; ask again",
              std::chrono::milliseconds(1000));
}

bool MemoryShare::try_take(uint64_t bytes) noexcept {
  if (!take_own(bytes)) return false;
  if (all_->take_now(bytes)) return true;
  hand_over(bytes);
  return false;
}

bool MemoryShare::adopt(uint64_t bytes) noexcept { return take_own(bytes); }

void Held::shrink(uint64_t bytes) {
  if (bytes >= bytes_) return;
  share_->give(bytes_ - bytes);
  bytes_ = bytes;
}

std::shared_ptr<void> counted(std::shared_ptr<void> data, Held held) {
  if (data == nullptr || held.bytes() == 0) return data;
  struct Both {  // the memory goes before its count
    Held held;
    std::shared_ptr<void> data;
  };
  void* const at = data.get();
  auto both = std::make_shared<Both>();
  both->data = std::move(data);
  both->held = std::move(held);
  return {std::move(both), at};
}

}  // namespace sluice::serving
