#pragma once
// The engine: devices, threads and memory that sessions share. Several may live in one process.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "export.h"
#include "standard.h"

namespace sluice {
class Engine;
}

namespace sluice::api {

struct Access;  // of Sluice's own

// Says what threads do that wait for each other within a kernel: spin for some milliseconds and then sleep, or sleep at
// once. kAuto: spin while no other process wants the cores.
enum class Spin { kAuto, kNever, kAlways };

// The source of the host memory that an engine gives its sessions: the memory plans compute in, weights that are not
// mapped, results. Without functions it is the system's. Both are called from any thread, also after the engine's end
// for results that are still held; they must not throw, block or call Sluice.
struct HostMemory {
  std::function<void*(size_t bytes, size_t alignment)> allocate = nullptr;  // null where there is none: kMemory
  std::function<void(void* data, size_t bytes)> release = nullptr;
};

struct EngineOptions {
  int cores = 0;            // lent to kernels, also to those of plans made for more; 0: all this process may run on
  int watchdog_ms = 10000;  // log who waits for whom when nothing happens for so long; 0: never
  std::vector<int> cpus =
      {};  // processors that kernels run on; empty: all. Unless `cores` says otherwise, so many cores
  Spin spin = Spin::kAuto;
  HostMemory memory = {};
  // Debugging by messages. The order in which actors get their messages changes no result. It is written to the file
  // `record_messages`; it is taken from the file `replay_messages`, by the same build for the same plans in the same
  // program, where anything else is an error that says what differs; or a seed chooses it. The last two run everything
  // in the thread that waits for results.
  std::string record_messages = {}, replay_messages = {};
  std::optional<uint64_t> shuffle_messages = std::nullopt;
  int stop_timeout_ms = 5000;  // how long its end waits for kernels that run
};

// The ranks of a job, of which this process is one: they run plans of several ranks together.
struct WorldOptions {
  int rank = 0;
  int size = 1;
  std::string master_host = "127.0.0.1";  // where rank 0 listens until all have come
  int master_port = 0;
  std::string token;         // the same in every rank, 1 to 64 characters; who does not have it is no rank
  int timeout_ms = 300000;   // to wait for other ranks: for all to come, and in each exchange
  int heartbeat_ms = 10000;  // a rank that is not heard of for so long counts as hung
};

// One that was moved from throws kValue when asked for anything.
class SLUICE_API Engine {
 public:
  explicit Engine(EngineOptions options = {});
  // Ends the sessions that still run on it and joins the threads; on any thread, after main() too. A kernel that does
  // not return delays it by stop_timeout_ms, and then keeps its thread and memory.
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Loads a shared library with ops and kernels (extension.h); nothing when it is loaded already. Throws kIo when it
  // cannot be loaded, kUnsupported when it is for another version, kValue when a name is taken.
  void load_extension(const std::string& path);

  // Makes the shared library at `path` the backend of a kind of device (docs/adding-a-device.md), in this process;
  // nothing when it is already. Or loads a foreign backend (sluice/offload.h), also by its name: plans that were
  // compiled for it use it from then on. Returns the kind, or the backend's name. Throws kUnsupported when it is no
  // backend of this build, kValue when its kind has another backend.
  std::string load_backend(const std::string& path);

  // Blocks until all ranks have met. Bundles of several ranks then run on all of them, which must load them in one
  // order; an engine that has not joined runs all ranks of a bundle itself. Its end leaves the others. Throws kValue,
  // kIo, kTimeout naming the ranks that did not come.
  void join(const WorldOptions& options);

  int cores() const;
  // Host bytes of the plans loaded now, and the most there ever were, as the allocator counts them.
  uint64_t memory_bytes() const;
  uint64_t peak_memory_bytes() const;

 private:
  friend struct Access;
  std::unique_ptr<sluice::Engine> impl_;
};

}  // namespace sluice::api
