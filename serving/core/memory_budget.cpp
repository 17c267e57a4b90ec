#include "serving/core/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "serving/core/error.h"

namespace sluice::serving {

bool MemoryBudget::take(uint64_t bytes) {
  uint64_t held = held_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || held > limit_ - bytes) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  return true;
}

MemoryShare::MemoryShare(std::shared_ptr<MemoryBudget> all, uint64_t limit)
    : all_(std::move(all)), limit_(std::min(limit, all_->limit())) {}

void MemoryShare::take(uint64_t bytes) {
  if (bytes > limit_ || held_ > limit_ - bytes)
    throw Error(Code::kTooLarge,
                fmt::format("request: it takes more than the {} bytes of memory that one may have; send "
                            "less, or binary data instead of JSON",
                            limit_));
  if (!all_->take(bytes))
    throw Error(Code::kOverloaded, "request: those that are under way hold all memory for requests; ask again",
                std::chrono::milliseconds(1000));
  held_ += bytes;
}

void MemoryShare::give(uint64_t bytes) {
  all_->give(bytes);
  held_ -= bytes;
}

}  // namespace sluice::serving
