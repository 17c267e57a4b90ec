#include "streams/cuda/cuda_stream.h"

namespace sluice::cuda {
namespace {

CUdeviceptr address(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

}  // namespace

CudaStream::CudaStream(std::shared_ptr<CudaContext> context, plan::StreamKind kind)
    : context_(std::move(context)), kind_(kind) {
  last_context_.reserve(128);
  const CurrentContext current(*context_);
  word_ = static_cast<LateFailure*>(context_->allocate(sizeof(LateFailure)));
  try {
    host_word_ = context_->take_word();
    context_->check(context_->driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    const LateFailure none;
    context_->write(word_, &none, sizeof(none));
  } catch (...) {
    if (stream_ != nullptr) static_cast<void>(context_->driver.cuStreamDestroy(stream_));
    if (host_word_ != nullptr) context_->give_word(host_word_);
    context_->deallocate(word_);
    throw;
  }
}

CudaStream::~CudaStream() {
  const CurrentContext current(*context_);
  static_cast<void>(context_->driver.cuStreamSynchronize(stream_));
  static_cast<void>(context_->driver.cuStreamDestroy(stream_));
  context_->give_word(host_word_);
  context_->deallocate(word_);
}

std::unique_ptr<Event> CudaStream::create_event() { return std::make_unique<CudaEvent>(context_); }

void CudaStream::note(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) fail(context_->status_of(result, call, last_context_));
}

void CudaStream::check(CUresult result, const char* call, const std::string* context) {
  const Status status = context_->status_of(result, call, last_context_);
  if (context != nullptr) last_context_.assign(*context);
  status.throw_if_error();
}

void CudaStream::begin_firing(uint64_t) {
  context_->make_current();
  if (host_failed()) {
    std::lock_guard lock(failure_mutex_);
    failure_ = Status();
    failed_.store(false, std::memory_order_release);
  }
  if (const Status poison = context_->poisoned(); !poison.ok()) return fail(poison);
  if (!fallible_.load(std::memory_order_relaxed)) return;
  note(context_->driver.cuMemsetD8Async(address(word_), 0, sizeof(LateFailure), stream_), "cuMemsetD8Async");
  fallible_.store(false, std::memory_order_release);
}

void CudaStream::wait(Event& event) {
  auto* cuda = dynamic_cast<CudaEvent*>(&event);
  if (cuda == nullptr) return fail(event.wait());
  if (!cuda->recorded_) return;
  context_->make_current();
  note(context_->driver.cuStreamWaitEvent(stream_, cuda->event_, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
  if (!host_failed() && cuda->fallible_) merge(cuda->word_);
  fail(cuda->status_);
}

void CudaStream::merge(const LateFailure* word) {
  try {
    fallible_.store(true, std::memory_order_release);
    LateFailure* to = word_;
    void* params[] = {&to, &word};
    const CUfunction function = context_->merge_failures();
    note(context_->driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, params, nullptr), "cuLaunchKernel");
  } catch (...) {
    fail(Status::from_current_exception());
  }
}

void CudaStream::fail(const Status& status) {
  if (status.ok()) return;
  std::lock_guard lock(failure_mutex_);
  if (failure_.ok()) failure_ = status;
  failed_.store(true, std::memory_order_release);
}

void CudaStream::record(Event& event) {
  auto* cuda = dynamic_cast<CudaEvent*>(&event);
  if (cuda == nullptr) {
    return fail({ErrorKind::kUnsupported,
                 fmt::format("stream: {}: an event of another kind of device; it can record its own only",
                             context_->id.str())});
  }
  context_->make_current();
  cuda->fallible_ = fallible_.load(std::memory_order_relaxed);
  if (cuda->fallible_) {
    note(context_->driver.cuMemcpyDtoHAsync(cuda->word_, address(word_), sizeof(LateFailure), stream_),
         "cuMemcpyDtoHAsync");
  }
  const CUresult result = context_->driver.cuEventRecord(cuda->event_, stream_);
  note(result, "cuEventRecord");
  cuda->recorded_ = true;
  cuda->fallible_ &= result == CUDA_SUCCESS;  // else nobody can wait until the word has been written
  cuda->launched_last_.assign(last_context_);
  if (!host_failed() && cuda->status_.ok()) return;
  std::lock_guard lock(failure_mutex_);
  cuda->status_ = failure_;
}

// The word is read in stream order, so a firing that begins meanwhile does not disturb.
Status CudaStream::synchronize() {
  std::lock_guard one(synchronize_mutex_);
  const CurrentContext current(*context_);
  const bool fallible = fallible_.load(std::memory_order_acquire);
  CUresult result = CUDA_SUCCESS;
  if (fallible) {
    result = context_->driver.cuMemcpyDtoHAsync(host_word_, address(word_), sizeof(LateFailure), stream_);
  }
  if (result == CUDA_SUCCESS) result = context_->driver.cuStreamSynchronize(stream_);
  if (const Status status = context_->status_of(result, "cuStreamSynchronize"); !status.ok()) return status;
  if (fallible && host_word_->ticket != 0) return context_->late_failures.resolve(*host_word_);
  if (!failed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

FailurePort CudaStream::failure_port() const {
  return {fallible_.load(std::memory_order_relaxed) ? word_ : nullptr, 0};
}

FailurePort CudaStream::failure_port(DescribeFailure describe, const std::string* context) {
  fallible_.store(true, std::memory_order_release);
  return {word_, context_->late_failures.note(describe, context)};
}

void CudaStream::launch(const Launch& launch) {
  if (host_failed()) return;
  context_->make_current();
  check(context_->driver.cuLaunchKernel(launch.function, launch.blocks, 1, 1, launch.threads, 1, 1, launch.shared_bytes,
                                        stream_, launch.params, nullptr),
        "cuLaunchKernel", launch.context);
}

CUstream CudaStream::library_stream(const std::string* context) {
  if (host_failed()) return nullptr;
  context_->make_current();
  if (context != nullptr) last_context_.assign(*context);
  return stream_;
}

// Copy streams move between the host and the device, others within the device.
void CudaStream::copy(void* to, const void* from, uint64_t bytes, const std::string* context) {
  if (host_failed() || bytes == 0) return;
  context_->make_current();
  const Driver& driver = context_->driver;
  if (kind_ == plan::StreamKind::kCopyIn) {
    check(driver.cuMemcpyHtoDAsync(address(to), from, bytes, stream_), "cuMemcpyHtoDAsync", context);
  } else if (kind_ == plan::StreamKind::kCopyOut) {
    check(driver.cuMemcpyDtoHAsync(to, address(from), bytes, stream_), "cuMemcpyDtoHAsync", context);
  } else {
    check(driver.cuMemcpyDtoDAsync(address(to), address(from), bytes, stream_), "cuMemcpyDtoDAsync", context);
  }
}

}  // namespace sluice::cuda
