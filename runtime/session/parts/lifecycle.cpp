#include "runtime/session/parts/lifecycle.h"

#include <new>

namespace sluice {

void Lifecycle::check_takes_steps(uint64_t step) const {
  failure_.throw_if_error();
  check_not_cancelled();
  SLUICE_CHECK_KIND(kRuntime, !resetting_, "session '{}' is being reset; submit when that is done", session_);
  if (data_ended_) end_of_data(step).throw_if_error();
}

void Lifecycle::check_not_cancelled() const {
  SLUICE_CHECK_KIND(kRuntime, !cancelled_, "session '{}' was stopped; load the plan again", session_);
}

Status Lifecycle::end_of_data(uint64_t step) const {
  try {
    return {ErrorKind::kEndOfData,
            fmt::format("session '{}': step {}: the data of a source has ended; reset() begins anew", session_, step)};
  } catch (const std::bad_alloc&) {
    return Status::from_current_exception();
  }
}

}  // namespace sluice
