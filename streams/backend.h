#pragma once
// Backends that are shared libraries of their own, loaded when one of their devices is first asked for: so the core
// links no vendor's library, and one build serves machines with and without a GPU.
#include <memory>
#include <string>
#include <vector>

#include "base/libraries.h"
#include "streams/devices.h"

namespace sluice {

class KernelTable;
class PreparedKernel;
namespace collective {
class Communicator;
}
namespace plan {
struct KernelQuery;
}

// A backend's library gives this through one function: extern "C" const sluice::Backend* sluice_backend().
struct Backend {
  const char* abi =
      nullptr;  // SLUICE_BACKEND_ABI: core and backend pass each other C++ objects, so one build made both
  const char* kind = nullptr;  // of its devices: DeviceKind::named(kind)
  std::unique_ptr<Device> (*make_device)(const DeviceId& id, const DeviceOptions& options) = nullptr;
  void (*add_kernels)(KernelTable& table) = nullptr;
  // all_gather and all_to_all of its devices' memory (kernels/collectives.h). Null: they go through the host.
  std::unique_ptr<PreparedKernel> (*prepare_collective)(const plan::KernelQuery& query,
                                                        collective::Communicator& group) = nullptr;
  // The libraries that its kernels stand on, and what is missing of them; null: nothing.
  std::vector<LibraryVersion> (*libraries)() = nullptr;
};

// The backend of `kind`, or null for kinds that are part of the core. Others are libraries "libsluice_<kind>.so", named
// by their path in SLUICE_<KIND>_LIBRARY, beside this program or library, or where the loader looks; each is loaded
// once and kept. Throws kUnsupported that says which kinds there are and where it looked. Thread-safe.
const Backend* backend_of(DeviceKind kind);

// The kinds of the core, those with a backend that has been loaded, and those with one named in the environment.
std::vector<DeviceKind> known_kinds();

// Makes the library at `path` the backend of the kind that it says; nothing when it is already. Throws what
// open_backend() throws, and kValue when the kind is of the core or has another backend. Thread-safe.
DeviceKind load_backend(const std::string& path);

// Loads a backend and looks whether it is one for this build. It is nobody's backend by that. Throws kUnsupported.
const Backend* open_backend(const std::string& path);

}  // namespace sluice
