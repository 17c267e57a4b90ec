#include "tensor/device_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <tuple>
#include <utility>

#include "graph/origin.h"
#include "kernels/kernel_cache.h"
#include "memory/core_lease.h"
#include "runtime/session/engine.h"

namespace sluice {
namespace {

constexpr uint64_t kMarkEvery = 64;  // calls
constexpr size_t kMostMarks = 12;    // the host is so many of them ahead of the stream at most
constexpr uint64_t kMostStaged = uint64_t{64} << 20;

plan::KernelQuery bytes_query(uint64_t bytes, const DeviceId& device) {
  const TensorSpec spec = TensorSpec::contiguous({DType::kUInt8, {static_cast<int64_t>(bytes)}});
  return {"copy", {}, {spec}, {spec}, device, 1};
}

// "train.py:41, backward, add, call 17 of sim:0": no two calls have the same.
std::string context_of(const char* what, uint64_t number, const DeviceId& device) {
  const OriginScope* scope = OriginScope::innermost();
  const std::string from = scope != nullptr && scope->of() != nullptr ? scope->of()->prefix() : "";
  return fmt::format("{}{}, call {} of {}", from, what, number, device.str());
}

}  // namespace

// Frees at once, as plans do, but not before the stream is done with it.
class DeviceQueue::PlanMemory final : public Allocator {
 public:
  explicit PlanMemory(DeviceQueue& queue) : queue_(queue) {}
  void* allocate(uint64_t bytes) override { return queue_.plans_->allocate(bytes); }
  void deallocate(void* data, uint64_t bytes) noexcept override {
    queue_.drain();
    queue_.plans_->deallocate(data, bytes);
  }
  AllocatorStats stats() const override { return queue_.plans_->stats(); }
  void reset_peak() override { queue_.plans_->reset_peak(); }

 private:
  DeviceQueue& queue_;
};

DeviceQueue::DeviceQueue(Engine& engine, const DeviceId& id)
    : engine_(engine),
      id_(id),
      plans_(engine.allocator({plan::SpaceKind::kDevice, id})),
      device_(engine.device(id)),
      desc_(device_.describe()),
      space_(desc_.host_memory ? plan::Space{} : plan::Space{plan::SpaceKind::kDevice, id}),
      pinned_(make_caching_allocator(desc_.dma ? make_device_allocator(device_, {plan::SpaceKind::kPinned, id})
                                               : make_host_allocator())),
      compute_(device_.create_stream(plan::StreamKind::kCompute, 0)),
      plan_memory_(std::make_unique<PlanMemory>(*this)),
      cache_(make_caching_allocator(desc_.host_memory ? make_host_allocator() : make_device_allocator(device_, space_),
                                    {engine.device_bytes(id), [this] { drain(); }})) {
  if (compute_->asynchronous() && !desc_.host_memory) copy_in_ = device_.create_stream(plan::StreamKind::kCopyIn, 0);
  compute_->begin_firing(0);
}

namespace {

// Objects that stay for ever, each with the one before it, so that it is no leak. Without a lock, for children of a
// fork.
struct Kept {
  std::shared_ptr<void> what;
  Kept* before = nullptr;
};
template <class T>
void keep(T what) {
  static std::atomic<Kept*> last{nullptr};
  auto* const kept = new Kept{std::make_shared<T>(std::move(what))};
  kept->before = last.exchange(kept);
}

}  // namespace

DeviceQueue::~DeviceQueue() {
  if (!drained_ || forked()) {  // a kernel may still be at it, or its thread is gone: what it uses stays
    keep(std::make_tuple(std::move(compute_), std::move(copy_in_), cache_, pinned_, plans_, std::move(calls_),
                         std::move(events_)));
    return;
  }
  copy_in_.reset();
  compute_.reset();
}

std::shared_ptr<Allocator> DeviceQueue::memory() { return {shared_from_this(), cache_.get()}; }

std::shared_ptr<Allocator> DeviceQueue::plan_memory() {
  if (desc_.host_memory) return nullptr;
  return {shared_from_this(), plan_memory_.get()};
}

void DeviceQueue::empty_cache() { cache_->release_kept(); }

void DeviceQueue::drain() noexcept {
  if (!closed_.load(std::memory_order_acquire) && !forked()) static_cast<void>(compute_->synchronize());
}

void DeviceQueue::check_open() const {
  engine_.check_process();
  SLUICE_CHECK_KIND(kRuntime, !closed_.load(std::memory_order_acquire),
                    "{}: its engine has been shut down; no further op can run", id_.str());
}

std::unique_ptr<Event> DeviceQueue::take_event() {
  if (events_.empty()) return compute_->create_event();
  std::unique_ptr<Event> event = std::move(events_.back());
  events_.pop_back();
  return event;
}

DeviceQueue::Call& DeviceQueue::next_call(const char* what, Passed& passed) {
  if (compute_->asynchronous() && number_ % kMarkEvery == 0 && number_ > passed_) {
    mark();
    while (marks_.size() > kMostMarks || (!marks_.empty() && marks_.front().event->complete())) pass_mark(passed);
  }
  if (!compute_->asynchronous()) retire(number_, passed);
  ++number_;
  Call& call = calls_.emplace_back();
  call.number = number_;
  call.context = context_of(what, number_, id_);
  return call;
}

void DeviceQueue::mark() {
  marks_.push_back({number_, take_event()});
  compute_->record(*marks_.back().event);
}

void DeviceQueue::pass_mark(Passed& passed) {
  const Status status = marks_.front().event->wait();
  if (!status.ok()) static_cast<void>(found(status));
  retire(marks_.front().number, passed);
}

void DeviceQueue::retire(uint64_t number, Passed& passed) {
  passed_ = std::max(passed_, number);
  for (; !marks_.empty() && marks_.front().number <= number; marks_.pop_front())
    events_.push_back(std::move(marks_.front().event));
  for (; !calls_.empty() && calls_.front().number <= number; calls_.pop_front()) {
    Call& call = calls_.front();
    if (call.staged != nullptr) pinned_->deallocate(call.staged, call.staged_bytes);
    staged_bytes_ -= call.staged_bytes;
    if (call.before != nullptr) events_.push_back(std::move(call.before));
    if (call.after != nullptr) events_.push_back(std::move(call.after));
    passed.push_back(std::move(call));
  }
}

// The first call of the failure is the one whose context its text has; where none has, as when the device is lost, the
// first that the stream is not known to have passed.
Status DeviceQueue::found(const Status& status) {
  if (failing_) return status;
  Status named = status;
  auto first = std::find_if(calls_.begin(), calls_.end(),
                            [&](const Call& call) { return status.message().find(call.context) != std::string::npos; });
  if (first == calls_.end() && !calls_.empty()) {
    first = calls_.begin();
    named = status.with_context("found after " + first->context);
  }
  const std::lock_guard lock(failures_mutex_);
  failures_.push_back({first == calls_.end() ? passed_ + 1 : first->number, UINT64_MAX, named});
  failing_ = true;
  any_failed_.store(true, std::memory_order_release);
  return named;
}

void DeviceQueue::told() {
  if (!failing_) return;
  {
    const std::lock_guard lock(failures_mutex_);
    failures_.back().last = number_;
  }
  failing_ = false;
  ++told_;
  compute_->begin_firing(number_);
}

void DeviceQueue::check(const Storage& storage) {
  if (!any_failed_.load(std::memory_order_acquire)) return;
  const uint64_t number = storage.written_by();
  const std::lock_guard lock(failures_mutex_);
  for (const Failure& failure : failures_) {
    if (failure.first <= number && number <= failure.last) failure.status.throw_if_error();
  }
}

void DeviceQueue::launch(const std::shared_ptr<const PreparedKernel>& kernel, KernelArgs args, const char* op,
                         int threads, std::span<Storage* const> written) {
  struct Workspace {
    Allocator& memory;
    const uint64_t bytes;
    void* const data = bytes > 0 ? memory.allocate(bytes) : nullptr;
    ~Workspace() {
      if (data != nullptr) memory.deallocate(data, bytes);  // who gets it next is queued behind
    }
  };
  // A device that computes on this thread takes its cores before the lock, in the same order as all who hold both.
  const bool here = !compute_->asynchronous();
  const CoreLease lease(engine_.leases(), here && kernel->needs_cores() ? threads : 0);
  check_open();
  Passed passed;
  const std::lock_guard lock(mutex_);
  Call& call = next_call(op, passed);
  call.kernel = kernel;
  const Workspace workspace{*cache_, kernel->workspace_bytes()};
  args.workspace = workspace.data;
  args.stream = compute_.get();
  args.context = &call.context;
  kernel->run(args);
  for (Storage* storage : written) storage->set_written_by(number_);
}

void DeviceQueue::copy_from_host(Storage& to, void* data, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  check_open();
  Passed passed;
  if (copy_in_ == nullptr) {
    synchronize();
    const std::lock_guard lock(mutex_);
    if (desc_.host_memory)
      std::memcpy(data, from, bytes);
    else
      device_.copy_from_host(data, from, bytes);
    next_call("copy from the host", passed);
    to.set_written_by(number_);
    return;
  }
  const auto kernel = engine_.kernel_cache().get(bytes_query(bytes, id_));
  const std::lock_guard lock(mutex_);
  if (staged_bytes_ > 0 && staged_bytes_ + bytes > kMostStaged) {
    mark();
    while (!marks_.empty()) pass_mark(passed);
  }
  Call& call = next_call("copy from the host", passed);
  call.kernel = kernel;
  call.staged = pinned_->allocate(bytes);
  call.staged_bytes = bytes;
  staged_bytes_ += bytes;
  std::memcpy(call.staged, from, bytes);
  call.before = take_event();
  call.after = take_event();
  // After what the block was used for before; and before what will use it.
  compute_->record(*call.before);
  copy_in_->begin_firing(number_);
  copy_in_->wait(*call.before);
  const void* inputs[] = {call.staged};
  void* outputs[] = {data};
  kernel->run({.inputs = inputs, .outputs = outputs, .stream = copy_in_.get(), .context = &call.context});
  copy_in_->record(*call.after);
  compute_->wait(*call.after);
  to.set_written_by(number_);
}

void DeviceQueue::copy_to_host(void* to, const Storage& from, const void* data, uint64_t bytes) {
  check(from);
  synchronize();
  check(from);  // another thread may have been told of the failure
  if (desc_.host_memory)
    std::memcpy(to, data, bytes);
  else
    device_.copy_to_host(to, data, bytes);
}

void DeviceQueue::synchronize() {
  Passed passed;
  uint64_t until = 0, told_before = 0;
  if (closed_.load(std::memory_order_acquire)) return;
  engine_.check_process();
  {
    const std::lock_guard lock(mutex_);
    until = number_;
    told_before = told_;
  }
  Status status = compute_->synchronize();
  {
    const std::lock_guard lock(mutex_);
    if (!status.ok() && told_before == told_) {
      status = found(status);
      told();
    }
    retire(until, passed);
  }
  status.throw_if_error();
}

void DeviceQueue::wait_idle(bool) { synchronize(); }

void DeviceQueue::close(std::chrono::milliseconds timeout) noexcept {
  if (forked() || closed_.exchange(true)) return;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Passed passed;
  const std::lock_guard lock(mutex_);  // who is queueing has done so
  try {
    if (compute_->asynchronous()) {
      events_.push_back(compute_->create_event());
      Event& event = *events_.back();
      compute_->record(event);
      while (!event.complete()) {
        if (std::chrono::steady_clock::now() > deadline) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    retire(number_, passed);
    drained_ = true;
  } catch (...) {
    // Then it is left as it is.
  }
}

}  // namespace sluice
