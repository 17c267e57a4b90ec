#pragma once
// The engine: devices, threads and memory that sessions share. Several may live in one process.
#include <cstdint>
#include <memory>
#include <string>

#include "export.h"

namespace sluice {
class Engine;
}

namespace sluice::api {

struct EngineOptions {
  int cores = 0;            // cores lent to kernels; 0: all this process may run on
  int watchdog_ms = 10000;  // log who waits for whom when nothing happens for so long; 0: never
};

class SLUICE_API Engine {
 public:
  explicit Engine(EngineOptions options = {});
  // Ends the sessions that still run on it and joins the threads; on any thread, after main() too. A kernel that does
  // not return delays it by five seconds, and then keeps its thread and memory.
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Loads a shared library with ops and kernels (extension.h); nothing when it is loaded already. Throws kIo when it
  // cannot be loaded, kUnsupported when it is for another version, kValue when a name is taken.
  void load_extension(const std::string& path);

  int cores() const;
  // Host bytes of the plans loaded now, and the most there ever were, as the allocator counts them.
  uint64_t memory_bytes() const;
  uint64_t peak_memory_bytes() const;
  sluice::Engine& impl() const { return *impl_; }

 private:
  std::unique_ptr<sluice::Engine> impl_;
};

}  // namespace sluice::api
