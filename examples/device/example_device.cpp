// A device backend as small as one can be: a queue that a thread empties, kernels that are the cpu's, memory that is
// the host's. docs/adding-a-device.md explains it.
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/kernel.h"
#include "streams/backend.h"
#include "streams/host_memory.h"

namespace example {

using namespace sluice;

constexpr const char* kKind = "example";  // its devices are example:0, example:1, ...

// Recordings are numbered, so that one event serves a register slot for ever: who waits means the latest recording
// that was queued before.
class ExampleEvent final : public Event {
 public:
  bool complete() const override {
    std::lock_guard lock(mutex_);
    return completed_ == recorded_;
  }
  Status wait() override { return wait_for(next(0)); }

  uint64_t next(uint64_t more) {
    std::lock_guard lock(mutex_);
    return recorded_ += more;
  }
  Status wait_for(uint64_t recording) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return completed_ >= recording; });
    return status_;
  }
  void set_complete(uint64_t recording, const Status& status) {
    std::lock_guard lock(mutex_);
    completed_ = recording;
    status_ = status;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0, completed_ = 0;
  Status status_;
};

class ExampleStream final : public Stream {
 public:
  ExampleStream(DeviceId device, plan::StreamKind kind, const DeviceOptions& options)
      : device_(device), kind_(kind), options_(options), ring_(256) {
    for (Task& task : ring_) {  // room for most kernels from the start; a slot keeps what it grew to
      task.inputs.reserve(8);
      task.outputs.reserve(8);
    }
    thread_ = std::thread([this] { work(); });
  }
  ~ExampleStream() override {
    push([](Task& task) { task.kind = Task::kStop; });
    thread_.join();
  }
  DeviceId device() const override { return device_; }
  plan::StreamKind kind() const override { return kind_; }
  bool asynchronous() const override { return true; }
  std::unique_ptr<Event> create_event() override { return std::make_unique<ExampleEvent>(); }
  void begin_firing(uint64_t) override {
    push([](Task& task) { task.kind = Task::kBegin; });
  }
  void wait(Event& event) override {
    auto* own = dynamic_cast<ExampleEvent*>(&event);
    if (own == nullptr) return fail(event.wait());  // another device's: the host waits
    push([&](Task& task) { task.kind = Task::kWait, task.event = own, task.recording = own->next(0); });
  }
  void fail(const Status& status) override {
    if (status.ok()) return;
    push([&](Task& task) { task.kind = Task::kFail, task.status = status; });
  }
  void record(Event& event) override {
    auto& own = dynamic_cast<ExampleEvent&>(event);
    push([&](Task& task) { task.kind = Task::kRecord, task.event = &own, task.recording = own.next(1); });
  }
  Status synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, until = queued_] { return done_ >= until; });
    return failure_;
  }
  void launch(const PreparedKernel& kernel, const KernelArgs& args, size_t inputs, size_t outputs, int cores) {
    push([&](Task& task) {
      task.kind = Task::kLaunch, task.kernel = &kernel, task.args = args, task.cores = cores;
      task.inputs.assign(args.inputs, args.inputs + inputs);  // the caller's pointers end with this call
      task.outputs.assign(args.outputs, args.outputs + outputs);
    });
  }

 private:
  struct Task {
    enum Kind : uint8_t { kStop, kBegin, kLaunch, kWait, kRecord, kFail } kind = kStop;
    ExampleEvent* event = nullptr;
    uint64_t recording = 0;
    Status status;
    const PreparedKernel* kernel = nullptr;
    KernelArgs args;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    int cores = 1;
  };

  // Waits for a free slot.
  template <class Fill>
  void push(Fill fill) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queued_ - done_ < ring_.size(); });
    fill(ring_[queued_++ % ring_.size()]);
    changed_.notify_all();
  }

  void work() {
    for (std::unique_lock lock(mutex_);; ++done_, changed_.notify_all()) {
      changed_.wait(lock, [this] { return queued_ > done_; });
      Task& task = ring_[done_ % ring_.size()];
      if (task.kind == Task::kStop) return;
      Status failure = task.kind == Task::kBegin ? Status() : failure_;
      lock.unlock();
      execute(task, failure);
      lock.lock();
      failure_ = std::move(failure);
    }
  }

  // The first failure of a firing stays, and skips what launches come after it.
  void execute(Task& task, Status& failure) {
    Status found;
    if (task.kind == Task::kRecord) task.event->set_complete(task.recording, failure);
    if (task.kind == Task::kWait) found = task.event->wait_for(task.recording);
    if (task.kind == Task::kFail) found = std::exchange(task.status, Status());
    if (task.kind == Task::kLaunch && failure.ok()) found = run(task);
    if (failure.ok()) failure = std::move(found);
  }

  // This device computes on the host's cores, so it asks for them.
  Status run(const Task& task) {
    Status status;
    if (options_.acquire_cores) options_.acquire_cores(task.cores);
    try {
      task.kernel->run({task.inputs.data(), task.outputs.data(), task.args.workspace});
    } catch (...) {
      status = Status::from_current_exception();
      if (task.args.context != nullptr) status = status.with_context(*task.args.context);
    }
    if (options_.release_cores) options_.release_cores(task.cores);
    return status;
  }

  const DeviceId device_;
  const plan::StreamKind kind_;
  const DeviceOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> ring_;
  uint64_t queued_ = 0, done_ = 0;
  Status failure_;  // of the firing in progress
  std::thread thread_;
};

class ExampleDevice final : public Device {
 public:
  ExampleDevice(const DeviceId& id, const DeviceOptions& options) : id_(id), options_(options) {}
  plan::DeviceDesc describe() const override {
    return {.device = id_, .host_memory = false, .asynchronous = true, .cores = options_.cores};
  }
  std::unique_ptr<Stream> create_stream(plan::StreamKind kind, int) override {
    return std::make_unique<ExampleStream>(id_, kind, options_);
  }
  void* allocate(const plan::Space& space, uint64_t bytes) override {
    return allocate_host(space.str().c_str(), bytes);
  }
  void deallocate(const plan::Space&, void* data, uint64_t) override { deallocate_host(data); }
  void copy_to_host(void* host, const void* device, uint64_t bytes) override { std::memcpy(host, device, bytes); }
  void copy_from_host(void* device, const void* host, uint64_t bytes) override { std::memcpy(device, host, bytes); }

 private:
  const DeviceId id_;
  const DeviceOptions options_;
};

// A kernel of the cpu, queued.
class ExampleKernel final : public PreparedKernel {
 public:
  ExampleKernel(std::unique_ptr<PreparedKernel> kernel, const plan::KernelQuery& query, int cores)
      : kernel_(std::move(kernel)), inputs_(query.inputs.size()), outputs_(query.outputs.size()), cores_(cores) {
    workspace_bytes_ = kernel_->workspace_bytes();
  }
  void run(const KernelArgs& args) const override {
    if (args.stream == nullptr) return kernel_->run(args);  // an eager call waits for its result anyway
    dynamic_cast<ExampleStream&>(*args.stream).launch(*kernel_, args, inputs_, outputs_, cores_);
  }

 private:
  const std::unique_ptr<PreparedKernel> kernel_;
  const size_t inputs_, outputs_;
  const int cores_;
};

void add_kernels(KernelTable& table) {
  for (const std::string& op : table.ops(DeviceKind::kCpu)) {
    KernelDef def = table.get(op, DeviceKind::kCpu);
    def.branches = false;  // the host does not wait for what a kernel says
    def.prepare = [prepare = def.prepare](const plan::KernelQuery& query, const PrepareContext& context) {
      return std::make_unique<ExampleKernel>(prepare(query, context), query, context.threads);
    };
    table.add(DeviceKind::named(kKind), std::move(def));
  }
}

}  // namespace example

extern "C" __attribute__((visibility("default"))) const sluice::Backend* sluice_backend() {
  static const sluice::Backend backend{
      SLUICE_BACKEND_ABI, example::kKind,
      [](const sluice::DeviceId& id, const sluice::DeviceOptions& options) -> std::unique_ptr<sluice::Device> {
        return std::make_unique<example::ExampleDevice>(id, options);
      },
      example::add_kernels};
  return &backend;
}
