#include "streams/cuda/cuda_chain.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "streams/cuda/cuda_stream.h"

namespace sluice::cuda {

CudaChain::CudaChain(CudaStream& stream, std::string context)
    : stream_(stream), device_(stream.context_), context_(std::move(context)) {
  recordings_.reserve(kMostRecordings);
}

CudaChain::~CudaChain() {
  const CurrentContext current(*device_);
  for (Recording& recording : recordings_) release(recording);
}

void CudaChain::release(Recording& recording) {
  if (recording.graph != nullptr) static_cast<void>(device_->driver.cuGraphExecDestroy(recording.graph));
  for (const uint64_t ticket : recording.tickets) device_->late_failures.release(ticket);
}

void CudaChain::run(std::span<void* const> key, const std::function<void()>& work) {
  if (stream_.host_failed()) return;
  const bool fallible = stream_.fallible_.load(std::memory_order_relaxed);
  const auto known = std::ranges::find_if(
      recordings_, [&](const Recording& r) { return r.fallible == fallible && std::ranges::equal(r.key, key); });
  if (known == recordings_.end()) {
    remember(key, fallible);
    return work();
  }
  if (known->graph == nullptr && !refused_) record(*known, work);
  known->graph != nullptr ? launch(*known) : work();
}

void CudaChain::remember(std::span<void* const> key, bool fallible) {
  if (recordings_.size() == kMostRecordings) {
    if (!std::exchange(full_, true)) tell(fmt::format("it has more than {} combinations of slots", kMostRecordings));
    return;
  }
  Recording& seen = recordings_.emplace_back();
  seen.key.assign(key.begin(), key.end());
  seen.fallible = fallible;
}

void CudaChain::record(Recording& recording, const std::function<void()>& work) {
  const Status status = capture(recording, work);
  recording.fallible_after = stream_.fallible_.load(std::memory_order_relaxed);
  if (status.ok()) return;
  stream_.fallible_.store(recording.fallible, std::memory_order_release);  // nothing has been queued
  release(recording);
  recording.tickets.clear();
  recording.graph = nullptr;
  refused_ = true;
  tell(status.message());
}

Status CudaChain::capture(Recording& recording, const std::function<void()>& work) {
  const Driver& driver = device_->driver;
  const auto told = [&](CUresult result, const char* call) { return device_->status_of(result, call); };
  device_->make_current();
  std::lock_guard queue(stream_.synchronize_mutex_);
  // Other threads may allocate, load and wait meanwhile.
  Status status =
      told(driver.cuStreamBeginCapture(stream_.stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  if (!status.ok()) return status;
  stream_.recording_ = &recording;
  try {
    work();
  } catch (...) {
    status = Status::from_current_exception();
  }
  stream_.recording_ = nullptr;
  CUgraph graph = nullptr;
  const Status ended = told(driver.cuStreamEndCapture(stream_.stream_, &graph), "cuStreamEndCapture");
  if (status.ok()) status = ended;
  if (status.ok()) status = told(driver.cuGraphInstantiate(&recording.graph, graph, 0), "cuGraphInstantiate");
  if (graph != nullptr) static_cast<void>(driver.cuGraphDestroy(graph));
  return status;
}

void CudaChain::tell(const std::string& why) const {
  log(LogLevel::kWarn, LogArea::kStreams, "{}: is launched kernel by kernel, not as a CUDA graph: {}", context_, why);
}

void CudaChain::launch(const Recording& recording) {
  device_->make_current();
  if (recording.fallible_after) stream_.fallible_.store(true, std::memory_order_release);
  stream_.check(device_->driver.cuGraphLaunch(recording.graph, stream_.stream_), "cuGraphLaunch", &context_);
}

}  // namespace sluice::cuda
