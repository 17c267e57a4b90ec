#include "serving/repository/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "serving/core/error.h"

namespace sluice::serving {

Ledger::Ledger(uint64_t limit) : state_(std::make_shared<State>()) { state_->limit = limit; }

Ledger::Share::~Share() {
  if (state_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  state_->used -= bytes_;
}

Ledger::Share Ledger::take(const std::string& who, uint64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  const uint64_t free = state_->limit - std::min(state_->limit, state_->used);
  if (state_->limit > 0 && bytes > free)
    throw Error(Code::kUnavailable,
                fmt::format("{}: it needs {} bytes; of the memory limit of {} bytes, {} are free: unload a model, or "
                            "raise the limit",
                            who, bytes, state_->limit, free));
  Share share;
  share.state_ = state_;
  share.bytes_ = bytes;
  state_->used += bytes;
  return share;
}

bool Ledger::fits(uint64_t bytes, uint64_t freed) const {
  const std::lock_guard lock(state_->mutex);
  return state_->limit == 0 ||
         bytes <= state_->limit - std::min(state_->limit, state_->used - std::min(freed, state_->used));
}

uint64_t Ledger::used() const {
  const std::lock_guard lock(state_->mutex);
  return state_->used;
}

}  // namespace sluice::serving
