#include "streams/cuda/cuda_event.h"

namespace sluice::cuda {

CudaEvent::CudaEvent(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {
  word_ = context_->take_word();
  try {
    event_ = context_->take_event();
  } catch (...) {
    context_->give_word(word_);
    throw;
  }
  launched_last_.reserve(128);
}

CudaEvent::~CudaEvent() {
  context_->give_word(word_);
  context_->give_event(event_);
}

bool CudaEvent::complete() const {
  if (!recorded_) return true;
  const CurrentContext current(*context_);
  const CUresult result = context_->driver.cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  static_cast<void>(context_->status_of(result, "cuEventQuery", launched_last_));  // wait() tells
  return true;
}

Status CudaEvent::wait() {
  if (!recorded_) return {};
  const CurrentContext current(*context_);
  const Status status =
      context_->status_of(context_->driver.cuEventSynchronize(event_), "cuEventSynchronize", launched_last_);
  if (!status.ok()) return status;
  if (fallible_ && word_->ticket != 0) return context_->late_failures.resolve(*word_);
  return status_;
}

}  // namespace sluice::cuda
