#pragma once
// The Engine owns what sessions share: devices, stream threads, the actor system, core leases, kernels, allocators.
// No singletons: two engines may live at once. Destroying one cancels and drains its sessions and joins its threads.
// That may happen at any time, on any thread, even after main() has returned (docs/adr/0009):
//  - A kernel or host function that does not return cannot be ended. After options.stop_timeout the sessions it keeps
//    are abandoned: their handles report kCancelled, and their memory and threads stay until it returns.
//  - At exit() engines that are still alive cancel their sessions first, for at most two seconds, so that no kernel
//    runs while static objects are destroyed; nothing can be loaded on them any more.
//
// Thread safety: every method may be called from any thread.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "kernels/worker_threads.h"
#include "memory/allocator.h"
#include "memory/storage.h"
#include "plan/plan.h"

namespace sluice {

class CoreLeases;
class CountedBytes;
class Deadlines;
class Device;
class KernelCache;
class KernelTrials;
class KernelTable;
class PackedWeights;
class SessionCore;
struct LoadedExtension;
namespace collective {
class World;
}
namespace actors {
class MessageProbe;
class StreamExecutor;
class System;
}  // namespace actors

struct EngineOptions {
  // Lent to kernels, also to those of a plan that was made for more (docs/adr/0014); 0: all this process may run on.
  int cores = 0;
  std::vector<int> cpus =
      {};  // processors that streams run on, and so their kernels; empty: all. Then `cores` counts them
  Spin spin = Spin::kAuto;       // of threads that wait: within a kernel, for messages, for steps
  bool manual_stepping = false;  // no stream threads: step() delivers one message, waits drive step()
  uint64_t seed = 0;             // of the choice of the next message when stepping manually
  // The order in which messages are handled: written to this file; taken from that one, which steps manually.
  std::string record_messages = {}, replay_messages = {};
  actors::MessageProbe* probe = nullptr;         // of manual stepping, for tests; REQUIRES: outlives the engine
  std::chrono::milliseconds stop_timeout{5000};  // how long destroying the engine waits for its sessions, together
  // The ranks this process is one of: plans of several ranks run on them together. All ranks load them in one order.
  std::shared_ptr<collective::World> world = nullptr;  // at first: see join()
  std::chrono::milliseconds watchdog{10000};  // report who waits for whom when nothing fires for so long; 0: never
  HostMemory memory = {};                     // where plans and results have their memory of the host
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Ends what runs, within `timeout` where it ends at all, and keeps further kernels from being started: what exit()
  // does first to engines that are still alive. Nothing can be loaded any more; the engine can only be destroyed.
  void shutdown(std::chrono::milliseconds timeout) noexcept;

  // Throws kRuntime in a fork of the process that made it: threads do not survive that.
  void check_process() const;

  const EngineOptions& options() const;
  int cores() const;
  // Whether its threads, and those who wait for steps, may look for what comes in a moment before they sleep.
  bool spins() const;

  // The device, made on first use. Throws kUnsupported when this build or machine has none such.
  Device& device(const DeviceId& id);
  // Kernels of all device kinds. Tests and embedders may add theirs before they load a plan.
  KernelTable& kernels();
  // Those of them that are prepared: whoever prepares one gets it here.
  KernelCache& kernel_cache();
  // Which of a kernel's implementations is fastest here, of those that somebody has asked to be run.
  KernelTrials& kernel_trials();
  // Loads a shared library with ops and kernels (runtime/extension.h); nothing when it is loaded already. Throws what
  // is wrong with it, and then nothing has changed.
  std::shared_ptr<const LoadedExtension> load_extension(const std::string& path);
  std::vector<std::shared_ptr<const LoadedExtension>> extensions() const;
  // Makes a library the backend of a kind of device (streams/backend.h), for every engine of the process.
  DeviceKind load_backend(const std::string& path);
  CoreLeases& leases();
  // From now on plans of several ranks run with these; null: all their ranks run in this process.
  void join(std::shared_ptr<collective::World> world);
  std::shared_ptr<collective::World> world() const;
  // A small number that nobody else has while someone holds it: of a stream that may wait for other ranks. May outlive
  // the engine.
  std::shared_ptr<const int> take_lane();

  // The counting allocator of a memory space, for whoever allocates once: arenas, loaded variables. It counts the bytes
  // that plans hold. Its storages may outlive the engine.
  std::shared_ptr<Allocator> allocator(const plan::Space& space);
  // Host memory with reuse by size class: eager tensors and results. Counts apart from allocator(host).
  std::shared_ptr<Allocator> caching_allocator();
  // The bytes of a device's own memory that are in use, by plans and by eager tensors.
  std::shared_ptr<CountedBytes> device_bytes(const DeviceId& device);
  AllocatorStats allocator_stats(const plan::Space& space);
  void reset_allocator_peak(const plan::Space& space);

  // Host memory with the first `bytes` bytes of `fresh` that somebody has got from here under `name` and still holds,
  // or else `fresh`. REQUIRES: nobody writes to either.
  std::shared_ptr<Storage> share(const std::string& name, std::shared_ptr<Storage> fresh, uint64_t bytes);

  // The deadlines of steps of its sessions.
  Deadlines& deadlines();

  // Copies of variables as kernels read them, for sessions.
  PackedWeights& packed_weights();

  // Manual stepping: delivers one message, chosen by the seed among those that may come next (the order of each edge
  // is kept), and runs what it makes ready. False when nothing is pending. REQUIRES: options().manual_stepping.
  bool step();
  // Goes on as if the engine had been made with this seed. REQUIRES: options().manual_stepping, nothing pending.
  void reseed(uint64_t seed);

  // For sessions. An executor of each stream, made with its thread on first use. A stream of the CPU has as many
  // executors as can hold their cores at the same time, and a session gets the one that the fewest have.
  std::vector<std::shared_ptr<actors::StreamExecutor>> executors(const std::vector<plan::Stream>& streams);
  // Those of kernels on several cores.
  WorkerThreads& workers();
  actors::System& actor_system();
  // A session that the engine closes when it goes first.
  void adopt(std::shared_ptr<SessionCore> core);
  // Takes over an abandoned session until its actors have ended. Later plans get new streams in place of those that are
  // stuck in it.
  void keep_until_ended(std::shared_ptr<SessionCore> core, const std::vector<actors::StreamExecutor*>& stuck);
  // The calling thread is one of this engine's streams.
  bool on_stream_thread() const;

 private:
  struct Impl;
  struct Live;
  void check_alive() const;  // REQUIRES: the lock of impl_ held
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
