#include "streams/sim/sim_stream.h"

#include <algorithm>

#include "base/thread.h"
#include "streams/sim/sim_shared.h"

namespace sluice {
namespace {

constexpr size_t kOperands = 8;  // room every slot starts with

SimEvent& as_sim(Event& event, const DeviceId& device) {
  auto* sim = dynamic_cast<SimEvent*>(&event);
  if (sim == nullptr) {
    fail(ErrorKind::kUnsupported, "stream: {}: an event of another kind of device; it can record its own only",
         device.str());
  }
  return *sim;
}

}  // namespace

SimStream::SimStream(DeviceId device, plan::StreamKind kind, std::shared_ptr<SimShared> shared)
    : device_(device), kind_(kind), shared_(std::move(shared)), ring_(kRing) {
  for (Task& task : ring_) {
    task.inputs.reserve(kOperands);
    task.outputs.reserve(kOperands);
  }
  thread_ = start_thread(fmt::format("device '{}': {} stream", device_.str(), plan::stream_kind_name(kind_)),
                         "sim worker", [this] { worker(); });
}

SimStream::~SimStream() {
  push(TaskKind::kStop);
  thread_.join();
}

std::unique_ptr<Event> SimStream::create_event() { return std::make_unique<SimEvent>(); }

SimStream::Task& SimStream::next_task() {
  const uint32_t at = queued_.load(std::memory_order_relaxed);
  for (uint32_t done = executed_.load(std::memory_order_acquire); at - done >= kRing;
       done = executed_.load(std::memory_order_acquire)) {
    executed_.wait(done, std::memory_order_acquire);
  }
  return ring_[at % kRing];
}

// The store is sequentially consistent because notify_one looks for sleepers right after it.
void SimStream::push(TaskKind kind) {
  next_task().kind = kind;
  queued_.store(queued_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  queued_.notify_one();
}

void SimStream::begin_firing(uint64_t) { push(TaskKind::kBegin); }

void SimStream::wait(Event& event) {
  auto* sim = dynamic_cast<SimEvent*>(&event);
  if (sim == nullptr) return fail(event.wait());
  Task& task = next_task();
  task.event = sim;
  task.target = task.event->recorded_.load(std::memory_order_acquire);
  push(TaskKind::kWait);
}

void SimStream::fail(const Status& status) {
  if (status.ok()) return;
  next_task().status = status;
  push(TaskKind::kFail);
}

void SimStream::record(Event& event) {
  Task& task = next_task();
  task.event = &as_sim(event, device_);
  task.target = task.event->recorded_.load(std::memory_order_relaxed) + 1;
  task.event->recorded_.store(task.target, std::memory_order_release);
  push(TaskKind::kRecord);
}

void SimStream::launch(const SimLaunch& launch) {
  Task& task = next_task();
  task.launch = launch;
  task.inputs.assign(launch.operands.inputs, launch.operands.inputs + launch.num_inputs);
  task.outputs.assign(launch.operands.outputs, launch.operands.outputs + launch.num_outputs);
  push(TaskKind::kLaunch);
}

Status SimStream::synchronize() {
  const uint32_t target = queued_.load(std::memory_order_acquire);
  for (uint32_t done = executed_.load(std::memory_order_acquire); static_cast<int32_t>(done - target) < 0;
       done = executed_.load(std::memory_order_acquire)) {
    executed_.wait(done, std::memory_order_acquire);
  }
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

void SimStream::worker() {
  for (uint32_t at = 0;; ++at) {
    while (queued_.load(std::memory_order_acquire) == at) queued_.wait(at, std::memory_order_acquire);
    Task& task = ring_[at % kRing];
    if (task.kind == TaskKind::kStop) return;
    execute(task);
    executed_.store(at + 1, std::memory_order_seq_cst);
    executed_.notify_all();
  }
}

void SimStream::execute(Task& task) {
  switch (task.kind) {
    case TaskKind::kBegin:
      if (!failure_.ok()) set_failure({});
      break;
    case TaskKind::kWait:
      task.event->wait_for(task.target);
      clock_ns_.store(std::max(clock_ns(), task.event->time_ns_), std::memory_order_relaxed);
      if (failure_.ok() && !task.event->status_.ok()) set_failure(task.event->status_);
      break;
    case TaskKind::kFail:
      if (failure_.ok()) set_failure(std::move(task.status));
      task.status = Status();
      break;
    case TaskKind::kRecord:
      task.event->status_ = failure_;
      task.event->time_ns_ = clock_ns();
      task.event->completed_.store(task.target, std::memory_order_seq_cst);
      task.event->completed_.notify_all();
      break;
    case TaskKind::kLaunch:
      if (failure_.ok()) execute_launch(task);
      break;
    case TaskKind::kStop: break;
  }
}

void SimStream::execute_launch(Task& task) {
  const SimLaunch& launch = task.launch;
  Status status = shared_->faults.take(*launch.op);
  if (status.ok()) {
    try {
      check_operands(task);
      if (shared_->acquire_cores) shared_->acquire_cores(launch.cores);
      const SimOperands operands{task.inputs.data(), task.outputs.data(), launch.operands.workspace,
                                 launch.operands.first};
      try {
        launch.run(launch.kernel, operands);
      } catch (...) {
        status = Status::from_current_exception();
      }
      if (shared_->release_cores) shared_->release_cores(launch.cores);
    } catch (...) {
      status = Status::from_current_exception();
    }
  }
  clock_ns_.store(clock_ns() + launch.duration_ns, std::memory_order_relaxed);
  if (!status.ok()) set_failure(launch.context != nullptr ? status.with_context(*launch.context) : std::move(status));
}

// Kernels touch device memory alone, except that a copy stream's inputs or outputs are the host's.
void SimStream::check_operands(const Task& task) const {
  const auto check = [&](const void* data, const char* what, size_t index, bool on_device) {
    if (data == nullptr || shared_->memory.owns(data) == on_device) return;
    sluice::fail(ErrorKind::kRuntime, "{}: {} {} is not in the memory of {}: got {}; copy it there first",
                 *task.launch.op, what, index, on_device ? device_.str() : "the host", data);
  };
  const bool from_host = kind_ == plan::StreamKind::kCopyIn, to_host = kind_ == plan::StreamKind::kCopyOut;
  for (size_t i = 0; i < task.inputs.size(); ++i) check(task.inputs[i], "input", i, !from_host);
  for (size_t i = 0; i < task.outputs.size(); ++i) check(task.outputs[i], "output", i, !to_host);
  check(task.launch.operands.workspace, "workspace", 0, true);
}

void SimStream::set_failure(Status status) {
  std::lock_guard lock(failure_mutex_);
  failure_ = std::move(status);
}

}  // namespace sluice
