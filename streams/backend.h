#pragma once
// Backends that are shared libraries of their own, loaded when one of their devices is first asked for: so the core
// links no vendor's library, and one build serves machines with and without a GPU.
#include <memory>

#include "base/libraries.h"
#include "streams/devices.h"

namespace sluice {

class KernelTable;

// What a backend's library gives, through one function: extern "C" const sluice::Backend* sluice_backend().
struct Backend {
  const char* abi =
      nullptr;  // SLUICE_BACKEND_ABI: core and backend pass each other C++ objects, so one build made both
  std::unique_ptr<Device> (*make_device)(const DeviceId& id, const DeviceOptions& options) = nullptr;
  void (*add_kernels)(KernelTable& table) = nullptr;
  // What its kernels stand on, and what is missing of that; null: nothing.
  std::vector<LibraryVersion> (*libraries)() = nullptr;
};

// The backend of `kind`, or null for kinds that are part of the core. Loaded once and kept. Throws kUnsupported when
// its library is not to be had. Thread-safe.
const Backend* backend_of(DeviceKind kind);

// Loads a backend: from `path`, or where that is empty from `library` beside this program or library, or by the
// loader's own search. Throws kUnsupported that says where it looked.
const Backend* load_backend(const char* library, const std::string& path);

}  // namespace sluice
