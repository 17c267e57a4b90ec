#pragma once
// Helpers that the bodies of the C API share: objects behind handles, and exceptions that become statuses.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "include/sluice/session.h"
#include "include/sluice/sluice.h"
#include "runtime/api/c_handles.h"

namespace sluice::c_api {

using api::ErrorKind;

struct StatusObject {
  sluice_kind kind;
  std::string message;
};
// Ports as the API's struct tells of them.
struct Ports {
  std::vector<api::Port> ports;
  std::vector<std::vector<const char*>> dims;  // into `ports`
  Ports(const Ports&) = delete;
  Ports(Ports&&) = default;
  explicit Ports(const std::vector<api::Port>& from) : ports(from) {
    for (const api::Port& port : ports) {
      std::vector<const char*>& names = dims.emplace_back();
      for (const std::string& dim : port.dims) names.push_back(dim.empty() ? nullptr : dim.c_str());
    }
  }
};
struct PlanObject {
  api::Plan plan;
  std::vector<std::string> actors{plan.actors()};
  Ports inputs{plan.inputs()}, outputs{plan.outputs()};
};
using NamedTensors = std::vector<api::NamedTensor>;
struct ArenasObject {
  std::shared_ptr<api::Engine> engine;  // outlives them
  api::SharedArenas arenas;
};
struct SessionObject {
  std::shared_ptr<api::Engine> engine;  // outlives the session
  api::Session session;
  Ports inputs{session.inputs()}, outputs{session.outputs()};
};
struct StepObject {
  std::shared_ptr<SessionObject> session;
  api::Result result;
};

// Never destroyed: other threads may be in a call while the process ends.
inline api::HandleTable& handles() {
  static auto* table = new api::HandleTable();
  return *table;
}

[[noreturn]] inline void fail(ErrorKind kind, const std::string& message) { throw api::Error(kind, message); }

// There is no memory for a status when there is no memory: one that needs none stands for all of these.
inline sluice_status* const kOutOfMemory = reinterpret_cast<sluice_status*>(uintptr_t{8});

inline sluice_status* make_status(sluice_kind kind, const char* message) noexcept {
  try {
    return handles().add<sluice_status>(std::make_shared<StatusObject>(StatusObject{kind, message}));
  } catch (...) {
    return kOutOfMemory;
  }
}

template <class F>
sluice_status* guarded(F&& f) noexcept {
  try {
    f();
    return nullptr;
  } catch (const api::Error& error) {
    return make_status(static_cast<sluice_kind>(static_cast<int>(error.kind()) + 1), error.what());
  } catch (const sluice::Error& error) {
    return make_status(static_cast<sluice_kind>(static_cast<int>(error.kind()) + 1), error.what());
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::exception& error) {
    return make_status(SLUICE_ERROR_RUNTIME, error.what());
  } catch (...) {
    return make_status(SLUICE_ERROR_RUNTIME, "sluice: unknown exception");
  }
}

// For functions that return no status.
template <class R, class F>
R answered(R otherwise, F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    return otherwise;
  }
}

template <class Object, class T>
std::shared_ptr<Object> get(const T* handle, const char* where, const char* what) {
  if (handle == nullptr) fail(ErrorKind::kValue, std::string(where) + ": " + what + " is NULL; pass one");
  std::shared_ptr<Object> object = handles().find<Object>(handle);
  if (object == nullptr) {
    fail(ErrorKind::kValue, std::string(where) + ": not a live handle of " + what + ": " +
                                std::to_string(reinterpret_cast<uintptr_t>(handle)) +
                                "; it must have been created and not destroyed");
  }
  return object;
}

template <class T>
T* check_pointer(T* pointer, const char* where, const char* what) {
  if (pointer == nullptr) fail(ErrorKind::kValue, std::string(where) + ": " + what + " is NULL; pass an address");
  return pointer;
}

// The options a caller gave, in this version's struct: fields it does not know keep their defaults.
template <class Options>
Options read_options(const Options* given, Options defaults, const char* where) {
  if (given == nullptr) return defaults;
  size_t size;
  std::memcpy(&size, given, sizeof size);
  if (size < sizeof size || size > 4096)
    fail(ErrorKind::kValue, std::string(where) + ": options.size: " + std::to_string(size) +
                                "; must be sizeof the struct: begin with its _INIT macro");
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(Options) && std::any_of(bytes + sizeof(Options), bytes + size, [](unsigned char b) { return b; }))
    fail(ErrorKind::kUnsupported,
         std::string(where) + ": options have fields that this version does not know; leave them 0");
  std::memcpy(&defaults, given, std::min(size, sizeof(Options)));
  return defaults;
}

inline std::vector<int64_t> shape_of(const int64_t* shape, int rank, const char* where) {
  if (rank < 0 || rank > 8)
    fail(ErrorKind::kValue, std::string(where) + ": rank: " + std::to_string(rank) + "; must be 0 to 8");
  if (rank > 0) check_pointer(shape, where, "shape");
  return {shape, shape + rank};
}

inline api::DType dtype_of(sluice_dtype dtype, const char* where) {
  const int value = static_cast<int>(dtype);
  if (value < 0 || value > static_cast<int>(SLUICE_COMPLEX128))
    fail(ErrorKind::kValue, std::string(where) + ": dtype: " + std::to_string(value) + "; must be a sluice_dtype");
  return static_cast<api::DType>(value);
}

// Names of devices and of their kinds are few.
inline const char* kept_name(const std::string& name) {
  static std::mutex mutex;
  static auto* const names = new std::set<std::string>();
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

inline sluice_tensor* add_tensor(api::Tensor tensor) {
  return handles().add<sluice_tensor>(std::make_shared<api::Tensor>(std::move(tensor)));
}

inline std::vector<api::Tensor> tensors_in(sluice_tensor* const* handles, size_t count, const char* where) {
  std::vector<api::Tensor> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(*get<api::Tensor>(handles[i], where, "a tensor"));
  return tensors;
}

inline std::vector<api::Tensor> tensors_of(sluice_tensor* const* inputs, size_t count, size_t expected,
                                           const char* where) {
  if (count != expected)
    fail(ErrorKind::kValue,
         std::string(where) + ": got " + std::to_string(count) + " inputs; the plan has " + std::to_string(expected));
  if (count > 0) check_pointer(inputs, where, "inputs");
  std::vector<api::Tensor> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(*get<api::Tensor>(inputs[i], where, "an input tensor"));
  return tensors;
}

inline void check_outputs(sluice_tensor** outputs, size_t count, size_t expected, const char* where) {
  if (count != expected)
    fail(ErrorKind::kValue, std::string(where) + ": room for " + std::to_string(count) + " outputs; the plan has " +
                                std::to_string(expected));
  if (count > 0) check_pointer(outputs, where, "outputs");
}

// All or none.
inline void give(const std::vector<api::Tensor>& tensors, sluice_tensor** outputs) {
  std::vector<sluice_tensor*> made;
  made.reserve(tensors.size());
  try {
    for (const api::Tensor& tensor : tensors) made.push_back(add_tensor(tensor));
  } catch (...) {
    for (sluice_tensor* tensor : made) handles().remove(tensor);
    throw;
  }
  std::copy(made.begin(), made.end(), outputs);
}

inline void give_port(const Ports& all, size_t index, sluice_port* port, const char* where) {
  const std::vector<api::Port>& ports = all.ports;
  check_pointer(port, where, "port");
  constexpr size_t kFirst = offsetof(sluice_port, dims);  // as the first version had it
  if (port->size < kFirst)
    fail(ErrorKind::kValue,
         std::string(where) + ": port.size: " + std::to_string(port->size) + "; begin with SLUICE_PORT_INIT");
  if (index >= ports.size())
    fail(ErrorKind::kIndex,
         std::string(where) + ": index " + std::to_string(index) + "; there are " + std::to_string(ports.size()));
  const api::Port& from = ports[index];
  port->name = from.name.c_str();
  port->dtype = static_cast<sluice_dtype>(from.dtype);
  port->rank = static_cast<int32_t>(from.shape.size());
  port->shape = from.shape.data();
  if (port->size >= offsetof(sluice_port, copied)) port->dims = from.dims.empty() ? nullptr : all.dims[index].data();
  if (port->size >= offsetof(sluice_port, device)) port->copied = from.copied.c_str();
  if (port->size >= sizeof(sluice_port)) port->device = from.device.c_str();
}

inline std::chrono::milliseconds timeout_of(int64_t ms, const char* where, const char* what) {
  if (ms < 0 || ms > std::numeric_limits<int32_t>::max())
    fail(ErrorKind::kValue,
         std::string(where) + ": " + what + ": " + std::to_string(ms) + "; must be 0 to 2147483647 milliseconds");
  return std::chrono::milliseconds(ms);
}

// Copies as much of `filled`, whose first field is its size, as the caller's struct has; that one keeps its size.
template <class Struct>
void give_struct(Struct filled, Struct* to, const char* where, const char* what) {
  check_pointer(to, where, what);
  const size_t size = to->size;
  if (size < sizeof size || size > 4096)
    fail(ErrorKind::kValue,
         std::string(where) + ": " + what + "->size: " + std::to_string(size) + "; set it to sizeof the struct");
  filled.size = size;
  std::memset(to, 0, size);
  std::memcpy(to, &filled, std::min(size, sizeof filled));
}

template <class T>
const T& entry(const std::vector<T>& all, size_t index, const char* where) {
  if (index >= all.size())
    fail(ErrorKind::kIndex,
         std::string(where) + ": index " + std::to_string(index) + "; there are " + std::to_string(all.size()));
  return all[index];
}

inline void give_text(std::string made, sluice_text** text) {
  *text = handles().add<sluice_text>(std::make_shared<std::string>(std::move(made)));
}

}  // namespace sluice::c_api
