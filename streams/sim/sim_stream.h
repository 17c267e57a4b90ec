#pragma once
// An asynchronous in-order queue: launch returns at once, a worker thread executes.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "streams/sim/sim_event.h"
#include "streams/stream.h"

namespace sluice {

struct SimShared;

// The operands that a kernel of the sim device computes on.
struct SimOperands {
  const void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;
  bool first = true;
};

// One kernel handed to a sim stream. Operand pointers are copied before launch() returns; `kernel`, `op` and `context`
// outlive its execution.
struct SimLaunch {
  const std::string* op = nullptr;
  void (*run)(const void* kernel, const SimOperands& operands) = nullptr;  // an exception fails the firing
  const void* kernel = nullptr;
  SimOperands operands;
  int num_inputs = 0, num_outputs = 0;
  int cores = 1;                         // threads it computes with
  int64_t duration_ns = 0;               // on the device's virtual clock
  const std::string* context = nullptr;  // appended to the message of its failure
};

// Thread safety: one host thread queues work; synchronize() and clock_ns() may be called from any thread.
// Invariants
//  1. Tasks execute in the order queued, one at a time; queued - executed <= kRing, and queueing waits when full.
//  2. A ring slot is written by the host only when free and read by the worker only when queued.
//  3. Queueing allocates nothing once every slot has seen its widest kernel.
class SimStream final : public Stream {
 public:
  SimStream(DeviceId device, plan::StreamKind kind, std::shared_ptr<SimShared> shared);
  ~SimStream() override;  // executes what is queued, then ends the worker
  DeviceId device() const override { return device_; }
  plan::StreamKind kind() const override { return kind_; }
  bool asynchronous() const override { return true; }
  std::unique_ptr<Event> create_event() override;
  void begin_firing(uint64_t step) override;
  // Events of sim are waited for on the device, others by the calling thread.
  void wait(Event& event) override;
  void fail(const Status& status) override;
  void record(Event& event) override;
  Status synchronize() override;

  void launch(const SimLaunch& launch);
  // The virtual time at which the work executed so far was done.
  int64_t clock_ns() const { return clock_ns_.load(std::memory_order_relaxed); }

 private:
  enum class TaskKind : uint8_t { kBegin, kWait, kFail, kRecord, kLaunch, kStop };
  struct Task {
    TaskKind kind = TaskKind::kStop;
    SimEvent* event = nullptr;
    uint32_t target = 0;  // of kWait, kRecord: the recording meant
    Status status;        // of kFail
    SimLaunch launch;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };
  static constexpr uint32_t kRing = 1024;

  Task& next_task();  // waits for a free slot
  void push(TaskKind kind);
  void worker();
  void execute(Task& task);
  void execute_launch(Task& task);
  void check_operands(const Task& task) const;
  void set_failure(Status status);

  const DeviceId device_;
  const plan::StreamKind kind_;
  const std::shared_ptr<SimShared> shared_;
  std::vector<Task> ring_;
  std::atomic<uint32_t> queued_{0};    // written by the host
  std::atomic<uint32_t> executed_{0};  // written by the worker
  std::atomic<int64_t> clock_ns_{0};
  std::mutex failure_mutex_;  // the worker alone writes failure_, so it reads without
  Status failure_;
  std::thread thread_;
};

}  // namespace sluice
