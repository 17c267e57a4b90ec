#pragma once
// Helpers that the bodies of the public API share: errors and types change at that border, nothing else does.
#include <chrono>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/tensor_spec.h"
#include "include/sluice/engine.h"
#include "include/sluice/error.h"
#include "include/sluice/plan.h"
#include "include/sluice/session.h"
#include "include/sluice/tensor.h"
#include "plan/family/family.h"
#include "runtime/session/session.h"

namespace sluice::api {

// Made before memory can run out. Copying it allocates nothing.
const Error& out_of_memory();

// Calls f; an Error of Sluice's own becomes the API's, as does the lack of memory.
template <class F>
auto guarded(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const sluice::Error& error) {
    try {
      throw Error(static_cast<ErrorKind>(error.kind()), error.what());
    } catch (const std::bad_alloc&) {
      throw out_of_memory();
    }
  } catch (const std::bad_alloc&) {
    throw out_of_memory();
  }
}

// The object that a handle stands for. A default-constructed one, and one that was moved from, stands for nothing.
template <class Impl>
typename Impl::element_type& held(const Impl& impl, const char* what, const char* source) {
  SLUICE_CHECK(impl != nullptr, "{}: it is empty: default-constructed or moved from; use one that {} gave", what,
               source);
  return *impl;
}

// The way from a public handle to what it stands for.
struct Access {
  template <class Handle>
  static auto& of(const Handle& handle, const char* what, const char* source) {
    return held(handle.impl_, what, source);
  }
};
inline sluice::Engine& inside(const Engine& engine) {
  return guarded([&]() -> sluice::Engine& { return Access::of(engine, "engine", "Engine()"); });
}
inline sluice::SessionFamily& inside(const Session& session) {
  return Access::of(session, "session", "Session::load()");
}

inline sluice::DType checked_dtype(DType dtype) {
  const int value = static_cast<int>(dtype);
  SLUICE_CHECK(value < kNumDTypes, "dtype: {}; must be one of the {} of DType", value, kNumDTypes);
  return static_cast<sluice::DType>(dtype);
}

inline TensorType type_of(const Tensor& tensor) { return {checked_dtype(tensor.dtype()), Shape(tensor.shape())}; }

// The storage behind a tensor's memory; one is made around memory that Sluice has not made.
std::shared_ptr<Storage> storage_of(const Tensor& tensor);
Tensor tensor_of(const OutputTensor& output);
// The space of its memory; the host's unless Sluice has made it elsewhere, or was told.
plan::Space space_of(const Tensor& tensor);
// The device's name in the API: "cpu:0" for all of the host's memory.
std::string device_of(const plan::Space& space);

inline void check_on_host(const Tensor& tensor) {
  SLUICE_CHECK(space_of(tensor).kind != plan::SpaceKind::kDevice,
               "tensor: {} on {}: its elements are read here; must lie in host memory: to(engine, \"cpu\") copies it",
               tensor.str(), tensor.device());
}

// Its type, for whoever reads all of it.
inline TensorType type_of_whole(const std::string& name, const Tensor& tensor) {
  TensorType type = type_of(tensor);
  check_on_host(tensor);
  SLUICE_CHECK(tensor.raw() != nullptr, "tensor '{}': it has no memory: {}; give one that was made with a type", name,
               type.str());
  return type;
}

// The limit of a wait; as many milliseconds as may ever pass stand for no limit.
inline std::chrono::nanoseconds timeout_of(std::chrono::milliseconds ms, const char* what) {
  SLUICE_CHECK(ms.count() >= 0, "{}: {} ms; must not be negative", what, ms.count());
  return ms > std::chrono::hours(24 * 365) ? std::chrono::nanoseconds::max() : std::chrono::nanoseconds(ms);
}

// With the dims of a family; none where a plan is alone.
std::vector<Port> ports_of(const plan::Family& family, const std::vector<PortInfo>& infos,
                           const std::vector<plan::FamilyPort>& axes);
// Names the dims of axes that steps make as long as they are.
void name_varying(std::vector<Port>& outputs, const std::vector<plan::ResultExtent>& extents);

}  // namespace sluice::api
