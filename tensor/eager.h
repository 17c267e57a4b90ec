#pragma once
// Runs ops now, on the calling thread, with the engine's kernels, memory and cores.
#include <chrono>
#include <memory>
#include <span>

#include "graph/executor.h"
#include "kernels/kernel.h"
#include "memory/storage.h"
#include "tensor/tensor.h"

namespace sluice {

class DeviceQueue;
class Engine;

// The executors of tensors have this in common: they can run something right now, if only beneath a trace.
class TensorExecutor {
 public:
  virtual ~TensorExecutor() = default;
  virtual EagerExecutor& eager() = 0;
};
// The eager executor at the bottom of this thread's current executor.
EagerExecutor& current_eager();

class OverwriteScope {
 public:
  // While it lives, the first eager call of this thread that reads `old`, and can, writes its result there, and gives
  // `target`, which has the same memory. No call may read `old` after that: it throws kRuntime.
  OverwriteScope(const Value& old, const Value& target);
  // The first call whose result fits `target` writes it there. REQUIRES: none reads memory that target has a part of.
  explicit OverwriteScope(const Value& target);
  ~OverwriteScope();
  OverwriteScope(const OverwriteScope&) = delete;
  OverwriteScope& operator=(const OverwriteScope&) = delete;

 private:
  friend class EagerExecutor;
  const Value &old_, &target_;
  const bool reads_old_;
  bool done_ = false;
  bool possible_ = true;  // `old` has not been read as a view, or piece by piece
  OverwriteScope* const previous_;
};

// Sets the functions that "host_function" calls, by name, when it runs eagerly on this thread while the scope lives.
class HostFunctionScope {
 public:
  explicit HostFunctionScope(const HostFunctions& functions);  // REQUIRES: they outlive the scope
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;

 private:
  const HostFunctions* const previous_;
};

// From now on bundles are held against the definitions of their ops before they are loaded, on any engine of the
// process. Making an EagerExecutor does it too.
void check_plans_from_files();

// Thread-safe. REQUIRES: the engine outlives it.
class EagerExecutor final : public Executor, public TensorExecutor {
 public:
  explicit EagerExecutor(Engine& engine);
  ~EagerExecutor() override;

  std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override;
  void assign(const Value& target, const Value& source) override;
  Value detach(const Value& value) override;
  Value copy(const Value& value) override;
  bool is_true(const Value& value) override;
  // As torch: a tensor without dims on the cpu goes with those of a device. So does the state of a generator.
  std::vector<Value> placed(const OpDef& op, std::span<const Value> inputs) override;
  std::shared_ptr<const Provenance> origin() override;
  EagerExecutor& eager() override { return *this; }

  Engine& engine() { return engine_; }
  // Uninitialised contiguous memory in `device`'s space. A shape that was broadcast is allocated in full.
  std::shared_ptr<EagerImpl> allocate(const TensorType& type, const DeviceId& device = {});
  // A copy on another device. The host waits for what it is to have.
  Value copy_to(const Value& value, const DeviceId& device);
  // The same, differentiably.
  Value move_to(const Value& value, const DeviceId& device);
  // A copy that is counted with what plans hold.
  Value copy_for_plan(const Value& value, const DeviceId& device);
  // The queue for the calls of a device other than the cpu; made on first use.
  DeviceQueue& queue(const DeviceId& device);
  // The queue, where there is one already.
  std::shared_ptr<DeviceQueue> find_queue(const DeviceId& device) const;
  std::vector<std::shared_ptr<DeviceQueue>> queues() const;
  // Waits for the calls so far on all devices, and tells a failure.
  void synchronize();
  // Nothing runs from now on; waits at most so long for what devices have been given.
  void close(std::chrono::milliseconds timeout) noexcept;
  void set_threads(int threads);  // of kernels; default: the engine's cores
  int threads() const;
  // From now on kernels of the CPU take denormal numbers for zero, on all of their threads; default: they do not.
  void set_flush_denormals(bool on);
  bool flushes_denormals() const;
  // The times that kernels of eager calls have taken, on any thread, while they are timed.
  struct KernelTime {
    uint64_t ns = 0, calls = 0;
  };
  void time_kernels(bool on);
  KernelTime kernel_time() const;
  // The built-in ops and those of the engine's extensions. They may outlive the executor; see ops_owner().
  const OpRegistry& ops();
  std::shared_ptr<const OpRegistry> ops_owner() const;

 private:
  struct Impl;
  // The ways of a call: as a view of its input, in this thread, and in a device's queue.
  std::vector<Value> call_view(const OpDef& op, const Value& input, const Attrs& attrs);
  inline std::vector<Value> call_on_host(std::span<const Value> inputs, const struct CallPlan& plan);
  std::vector<Value> call_on_device(const OpDef& op, std::span<const Value> inputs, const struct CallPlan& plan);
  Value copy_into(const Value& value, std::shared_ptr<EagerImpl> to);
  // Copies between any two layouts of one type, on one device. REQUIRES: storages were asked for access.
  void copy_strided(const TensorSpec& from, const void* source, const TensorSpec& to, EagerImpl& target);
  // The memory that `plan`'s call may write its result to, if it is one that an OverwriteScope is about; else null.
  char* overwritten(const struct CallPlan& plan, std::span<const Value> inputs) const;
  Engine& engine_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
