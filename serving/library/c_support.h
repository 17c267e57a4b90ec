#pragma once
// Helpers that the bodies of the C interface share: objects behind handles, and exceptions that become errors.
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

#include "include/sluice/serving.hpp"
#include "include/sluice/sluice_server.h"

namespace sluice::serving::c {

namespace facade = sluice::api::serving;

struct ErrorObject {
  sluice_server_code code = SLUICE_SERVER_INTERNAL;
  std::string message;
  int64_t retry_after_ms = -1;
};
struct RequestObject {
  std::mutex mutex;
  facade::Request request;
};

// A handle is a number that is never used twice, dressed as a pointer; nothing is read through it.
// Thread safety: every method. An object lives until its handle is removed and the last call that uses it returns.
class Handles {
 public:
  template <class T, class Object>
  T* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const uintptr_t id = next_ += 16;
    entries_.emplace(id, Entry{kind<T>(), std::move(object)});
    return reinterpret_cast<T*>(id);
  }
  // Null when `handle` is none of this kind.
  template <class Object, class T>
  std::shared_ptr<Object> find(const T* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == entries_.end() || found->second.kind != kind<T>()) return nullptr;
    return std::static_pointer_cast<Object>(found->second.object);
  }
  // Returns the object that it stood for, if any.
  template <class Object, class T>
  std::shared_ptr<Object> remove(const T* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == entries_.end() || found->second.kind != kind<T>()) return nullptr;
    auto object = std::static_pointer_cast<Object>(found->second.object);
    entries_.erase(found);
    return object;
  }

 private:
  struct Entry {
    const void* kind;
    std::shared_ptr<void> object;
  };
  template <class T>
  static const void* kind() {
    static const char tag = 0;
    return &tag;
  }
  std::mutex mutex_;
  uintptr_t next_ = 0x1000;
  std::unordered_map<uintptr_t, Entry> entries_;
};

// Never destroyed: other threads may be in a call while the process ends.
inline Handles& handles() {
  static auto* const table = new Handles();
  return *table;
}

// There is no memory for an error when there is no memory: one that needs none stands for all of these.
inline sluice_server_error* out_of_memory() { return reinterpret_cast<sluice_server_error*>(uintptr_t{8}); }

inline sluice_server_error* make_error(ErrorObject error) noexcept {
  try {
    return handles().add<sluice_server_error>(std::make_shared<ErrorObject>(std::move(error)));
  } catch (...) {
    return out_of_memory();
  }
}
inline sluice_server_error* make_error(const facade::Error& error) noexcept {
  try {
    return make_error(ErrorObject{static_cast<sluice_server_code>(static_cast<int>(error.code()) + 1), error.what(),
                                  error.retry_after() ? int64_t{error.retry_after()->count()} : int64_t{-1}});
  } catch (...) {
    return out_of_memory();
  }
}

[[noreturn]] inline void fail(const std::string& message) {
  throw facade::Error(facade::Code::kInvalidArgument, message);
}

template <class Function>
sluice_server_error* guarded(const Function& function) noexcept {
  try {
    function();
    return nullptr;
  } catch (const facade::Error& error) {
    return make_error(error);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return make_error(ErrorObject{SLUICE_SERVER_INTERNAL, error.what(), -1});
  }
}

// For functions that return no error.
template <class R, class Function>
R answered(R otherwise, const Function& function) noexcept {
  try {
    return function();
  } catch (...) {
    return otherwise;
  }
}

template <class Object, class T>
std::shared_ptr<Object> get(const T* handle, const char* where, const char* what) {
  std::shared_ptr<Object> object = handles().find<Object>(handle);
  if (object == nullptr)
    fail(std::string(where) + ": not a live handle of a " + what + "; it must have been created and not destroyed");
  return object;
}

template <class T>
T* given(T* pointer, const char* where, const char* what) {
  if (pointer == nullptr) fail(std::string(where) + ": " + what + " is NULL; pass an address");
  return pointer;
}

inline std::string text_of(const char* text) { return text == nullptr ? "" : text; }

}  // namespace sluice::serving::c
