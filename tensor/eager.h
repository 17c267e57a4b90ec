#pragma once
// Runs ops now, on the calling thread, with the engine's kernels, memory and cores.
#include <memory>

#include "graph/executor.h"
#include "kernels/kernel.h"
#include "memory/storage.h"
#include "tensor/tensor.h"

namespace sluice {

class Engine;

// What executors of tensors have in common: they can run something right now, if only beneath a trace.
class TensorExecutor {
 public:
  virtual ~TensorExecutor() = default;
  virtual EagerExecutor& eager() = 0;
};
// The eager executor at the bottom of this thread's current executor.
EagerExecutor& current_eager();

// What "host_function" calls, by name, when it runs eagerly on this thread while the scope lives.
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
  EagerExecutor& eager() override { return *this; }

  Engine& engine() { return engine_; }
  // Uninitialised contiguous memory in `device`'s space. A shape that was broadcast is allocated in full.
  std::shared_ptr<EagerImpl> allocate(const TensorType& type, const DeviceId& device = {});
  // A copy on another device; waits for both.
  Value copy_to(const Value& value, const DeviceId& device);
  void set_threads(int threads);  // of kernels; default: the engine's cores
  int threads() const;
  // The built-in ops and those of the engine's extensions. They may outlive the executor; see ops_owner().
  const OpRegistry& ops();
  std::shared_ptr<const OpRegistry> ops_owner() const;
  // Run ops by their `decompose` where they have one, for tests.
  void set_prefer_decompose(bool on);

 private:
  struct Impl;
  void assign_on_device(EagerImpl& to, const Value& source);
  Engine& engine_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
