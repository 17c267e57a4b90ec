#pragma once
// The Engine owns what sessions share: devices, stream threads, the actor system, core leases, kernels, allocators.
// No singletons: two engines may live at once. Destroying one cancels and drains its sessions and joins its threads;
// that must happen before main() returns, because the actor system uses thread-local state of the main thread.
//
// Thread safety: every method may be called from any thread.
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/device.h"
#include "memory/storage.h"
#include "plan/plan.h"

namespace sluice {

class CoreLeases;
class Device;
class KernelTable;
class SessionCore;
namespace actors {
class StreamExecutor;
class System;
}  // namespace actors

struct EngineOptions {
  int cores = 0;                              // cores lent to kernels; 0: all this process may run on
  bool manual_stepping = false;               // no stream threads: step() delivers one message, waits drive step()
  uint64_t seed = 0;                          // of the choice of the next message when stepping manually
  std::chrono::milliseconds watchdog{10000};  // report who waits for whom when nothing fires for so long; 0: never
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineOptions& options() const;
  int cores() const;

  // The device, made on first use. Throws kUnsupported when this build or machine has none such.
  Device& device(const DeviceId& id);
  // Kernels of all device kinds. Tests and embedders may add theirs before they load a plan.
  KernelTable& kernels();
  CoreLeases& leases();

  // The counting allocator of a memory space, for whoever allocates once: arenas, loaded variables. What it counts is
  // what plans hold. Its storages may outlive the engine.
  std::shared_ptr<Allocator> allocator(const plan::Space& space);
  // Host memory with reuse by size class: eager tensors and results. Counts apart from allocator(host).
  std::shared_ptr<Allocator> caching_allocator();
  AllocatorStats allocator_stats(const plan::Space& space);
  void reset_allocator_peak(const plan::Space& space);

  // Manual stepping: delivers one message, chosen by the seed among those that may come next (the order of each edge
  // is kept), and runs what it makes ready. False when nothing is pending. REQUIRES: options().manual_stepping.
  bool step();

  // For sessions. The executor of (device, kind, index), made with its thread on first use.
  actors::StreamExecutor& executor(const plan::Stream& stream);
  actors::System& actor_system();
  // A session that the engine closes when it goes first.
  void adopt(std::shared_ptr<SessionCore> core);
  bool on_stream_thread() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
