#include "runtime/session/step_book.h"

#include <new>

namespace sluice {

std::shared_ptr<StepState> StepBook::unused_state() const {
  for (const std::shared_ptr<StepState>& pooled : pool_)
    if (sole_owner(pooled)) return pooled;
  return nullptr;
}

std::shared_ptr<StepState> StepBook::new_state(std::weak_ptr<SessionCore> session) {
  auto state = std::make_shared<StepState>();
  state->session = std::move(session);
  if (pool_.size() < states_.size() + 2) {  // callers still hold some of steps that are finished
    pool_.push_back(state);
    state->pooled = true;
  }
  return state;
}

std::string StepBook::tag_of(uint64_t step) const {
  const std::shared_ptr<StepState>& found = state(step);
  if (found == nullptr || found->step != step || found->tag.empty()) return "";
  try {
    return " ('" + found->tag + "')";
  } catch (const std::bad_alloc&) {
    return "";
  }
}

void StepBook::add_failure(uint64_t step, const Status& status) {
  try {
    failures_.emplace(step, status);
  } catch (const std::bad_alloc&) {
    add_late_failure(status);
  }
}

Status StepBook::take_failures(uint64_t step, Status answered, bool first_here) {
  for (auto it = failures_.begin(); it != failures_.end() && it->first <= step; it = failures_.erase(it))
    if (answered.ok() || (first_here && it->first == step)) answered = it->second;
  return answered;
}

}  // namespace sluice
