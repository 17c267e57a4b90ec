// The C API on top of the C++ one. Exceptions become statuses here.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "include/sluice/session.h"
#include "include/sluice/sluice.h"
#include "runtime/c_handles.h"
#include "sluice/version.h"

namespace api = sluice::api;

namespace {

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
  Ports inputs{plan.inputs()}, outputs{plan.outputs()};
};
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
api::HandleTable& handles() {
  static auto* table = new api::HandleTable();
  return *table;
}

[[noreturn]] void fail(ErrorKind kind, const std::string& message) { throw api::Error(kind, message); }

// There is no memory for a status when there is no memory: one that needs none stands for all of these.
sluice_status* const kOutOfMemory = reinterpret_cast<sluice_status*>(uintptr_t{8});

sluice_status* make_status(sluice_kind kind, const char* message) noexcept {
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

std::vector<int64_t> shape_of(const int64_t* shape, int rank, const char* where) {
  if (rank < 0 || rank > 8)
    fail(ErrorKind::kValue, std::string(where) + ": rank: " + std::to_string(rank) + "; must be 0 to 8");
  if (rank > 0) check_pointer(shape, where, "shape");
  return {shape, shape + rank};
}

api::DType dtype_of(sluice_dtype dtype, const char* where) {
  const int value = static_cast<int>(dtype);
  if (value < 0 || value > static_cast<int>(SLUICE_FLOAT64))
    fail(ErrorKind::kValue, std::string(where) + ": dtype: " + std::to_string(value) + "; must be a sluice_dtype");
  return static_cast<api::DType>(value);
}

// The names of the kinds of devices are few.
const char* kept_name(const std::string& name) {
  static std::mutex mutex;
  static auto* const names = new std::set<std::string>();
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

sluice_tensor* add_tensor(api::Tensor tensor) {
  return handles().add<sluice_tensor>(std::make_shared<api::Tensor>(std::move(tensor)));
}

std::vector<api::Tensor> tensors_of(sluice_tensor* const* inputs, size_t count, size_t expected, const char* where) {
  if (count != expected)
    fail(ErrorKind::kValue,
         std::string(where) + ": got " + std::to_string(count) + " inputs; the plan has " + std::to_string(expected));
  if (count > 0) check_pointer(inputs, where, "inputs");
  std::vector<api::Tensor> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(*get<api::Tensor>(inputs[i], where, "an input tensor"));
  return tensors;
}

void check_outputs(sluice_tensor** outputs, size_t count, size_t expected, const char* where) {
  if (count != expected)
    fail(ErrorKind::kValue, std::string(where) + ": room for " + std::to_string(count) + " outputs; the plan has " +
                                std::to_string(expected));
  if (count > 0) check_pointer(outputs, where, "outputs");
}

// All or none.
void give(const std::vector<api::Tensor>& tensors, sluice_tensor** outputs) {
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

void give_port(const Ports& all, size_t index, sluice_port* port, const char* where) {
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
  if (port->size >= sizeof(sluice_port)) port->copied = from.copied.c_str();
}

std::chrono::milliseconds timeout_of(int64_t ms, const char* where, const char* what) {
  if (ms < 0 || ms > std::numeric_limits<int32_t>::max())
    fail(ErrorKind::kValue,
         std::string(where) + ": " + what + ": " + std::to_string(ms) + "; must be 0 to 2147483647 milliseconds");
  return std::chrono::milliseconds(ms);
}

}  // namespace

const char* sluice_version(void) { return SLUICE_VERSION; }

sluice_kind sluice_status_kind(const sluice_status* status) {
  if (status == nullptr) return SLUICE_OK;
  if (status == kOutOfMemory) return SLUICE_ERROR_MEMORY;
  return answered(SLUICE_ERROR_VALUE, [&] { return get<StatusObject>(status, "", "")->kind; });
}

const char* sluice_status_message(const sluice_status* status) {
  if (status == nullptr) return "";
  if (status == kOutOfMemory) return "sluice: out of memory";
  return answered("sluice: not a live status", [&] { return get<StatusObject>(status, "", "")->message.c_str(); });
}

void sluice_status_destroy(sluice_status* status) { handles().remove(status); }

sluice_status* sluice_tensor_create(sluice_dtype dtype, const int64_t* shape, int rank, sluice_tensor** tensor) {
  return guarded([&] {
    const char* where = "sluice_tensor_create";
    check_pointer(tensor, where, "tensor");
    *tensor = add_tensor(api::Tensor(dtype_of(dtype, where), shape_of(shape, rank, where)));
  });
}

sluice_status* sluice_tensor_from_data(sluice_dtype dtype, const int64_t* shape, int rank, const void* data,
                                       size_t bytes, sluice_tensor** tensor) {
  return guarded([&] {
    const char* where = "sluice_tensor_from_data";
    check_pointer(tensor, where, "tensor");
    api::Tensor made(dtype_of(dtype, where), shape_of(shape, rank, where));
    if (bytes != made.bytes())
      fail(ErrorKind::kValue, std::string(where) + ": " + std::to_string(bytes) + " bytes; " + made.str() + " has " +
                                  std::to_string(made.bytes()));
    if (bytes > 0) std::memcpy(made.raw(), check_pointer(data, where, "data"), bytes);
    *tensor = add_tensor(std::move(made));
  });
}

sluice_status* sluice_tensor_from_memory(sluice_dtype dtype, const int64_t* shape, int rank, void* data, size_t bytes,
                                         void (*release)(void* context), void* context, sluice_tensor** tensor) {
  return guarded([&] {
    const char* where = "sluice_tensor_from_memory";
    check_pointer(tensor, where, "tensor");
    if (bytes > 0) check_pointer(data, where, "data");
    // Until all is well the memory is the caller's.
    struct Release {
      void (*release)(void* context) = nullptr;
      void* context = nullptr;
      void operator()(void*) const {
        if (release != nullptr) release(context);
      }
    };
    const std::shared_ptr<void> memory(data, Release{});
    api::Tensor made(dtype_of(dtype, where), shape_of(shape, rank, where), memory);
    const size_t needed = data == nullptr ? 0 : made.bytes();
    if (bytes != needed)
      fail(ErrorKind::kValue, std::string(where) + ": " + std::to_string(bytes) + " bytes; " + made.str() + " has " +
                                  std::to_string(needed));
    sluice_tensor* const handle = add_tensor(std::move(made));
    *std::get_deleter<Release>(memory) = {release, context};
    *tensor = handle;
  });
}

void sluice_tensor_destroy(sluice_tensor* tensor) { handles().remove(tensor); }

void* sluice_tensor_data(const sluice_tensor* tensor) {
  return answered<void*>(nullptr, [&] { return get<api::Tensor>(tensor, "", "")->raw(); });
}
size_t sluice_tensor_bytes(const sluice_tensor* tensor) {
  return answered<size_t>(0, [&] { return get<api::Tensor>(tensor, "", "")->bytes(); });
}
int64_t sluice_tensor_size(const sluice_tensor* tensor) {
  return answered<int64_t>(0, [&] { return get<api::Tensor>(tensor, "", "")->size(); });
}
sluice_dtype sluice_tensor_dtype(const sluice_tensor* tensor) {
  return answered(SLUICE_BOOL, [&] { return static_cast<sluice_dtype>(get<api::Tensor>(tensor, "", "")->dtype()); });
}
int sluice_tensor_rank(const sluice_tensor* tensor) {
  return answered(0, [&] { return static_cast<int>(get<api::Tensor>(tensor, "", "")->shape().size()); });
}
const int64_t* sluice_tensor_shape(const sluice_tensor* tensor) {
  return answered<const int64_t*>(nullptr, [&] { return get<api::Tensor>(tensor, "", "")->shape().data(); });
}

sluice_status* sluice_engine_create(const sluice_engine_options* options, sluice_engine** engine) {
  return guarded([&] {
    const char* where = "sluice_engine_create";
    check_pointer(engine, where, "engine");
    const sluice_engine_options o = read_options(options, SLUICE_ENGINE_OPTIONS_INIT, where);
    if (o.cores < 0 || o.cores > 65536)
      fail(ErrorKind::kValue, std::string(where) + ": cores: " + std::to_string(o.cores) + "; must be 0 to 65536");
    timeout_of(o.watchdog_ms, where, "watchdog_ms");
    if (o.spin < 0 || o.spin > 2)
      fail(ErrorKind::kValue, std::string(where) + ": spin: " + std::to_string(o.spin) + "; must be 0, 1 or 2");
    api::EngineOptions given;
    given.cores = o.cores;
    given.watchdog_ms = o.watchdog_ms;
    given.spin = static_cast<api::Spin>(o.spin);
    *engine = handles().add<sluice_engine>(std::make_shared<api::Engine>(given));
  });
}

void sluice_engine_destroy(sluice_engine* engine) { handles().remove(engine); }

uint64_t sluice_engine_memory_bytes(const sluice_engine* engine) {
  return answered<uint64_t>(0, [&] { return get<api::Engine>(engine, "", "")->memory_bytes(); });
}
uint64_t sluice_engine_peak_memory_bytes(const sluice_engine* engine) {
  return answered<uint64_t>(0, [&] { return get<api::Engine>(engine, "", "")->peak_memory_bytes(); });
}

sluice_status* sluice_engine_load_extension(sluice_engine* engine, const char* path) {
  return guarded([&] {
    const char* where = "sluice_engine_load_extension";
    get<api::Engine>(engine, where, "an engine")->load_extension(check_pointer(path, where, "path"));
  });
}

sluice_status* sluice_engine_load_backend(sluice_engine* engine, const char* path, const char** kind) {
  return guarded([&] {
    const char* where = "sluice_engine_load_backend";
    const auto owner = get<api::Engine>(engine, where, "an engine");
    const std::string loaded = owner->load_backend(check_pointer(path, where, "path"));
    if (kind != nullptr) *kind = kept_name(loaded);
  });
}

sluice_status* sluice_plan_load(const char* path, sluice_plan** plan) {
  return guarded([&] {
    const char* where = "sluice_plan_load";
    check_pointer(plan, where, "plan");
    *plan = handles().add<sluice_plan>(
        std::make_shared<PlanObject>(PlanObject{api::Plan::load(check_pointer(path, where, "path"))}));
  });
}

void sluice_plan_destroy(sluice_plan* plan) { handles().remove(plan); }

const char* sluice_plan_name(const sluice_plan* plan) {
  return answered("", [&] { return get<PlanObject>(plan, "", "")->plan.name().c_str(); });
}
size_t sluice_plan_num_inputs(const sluice_plan* plan) {
  return answered<size_t>(0, [&] { return get<PlanObject>(plan, "", "")->inputs.ports.size(); });
}
size_t sluice_plan_num_outputs(const sluice_plan* plan) {
  return answered<size_t>(0, [&] { return get<PlanObject>(plan, "", "")->outputs.ports.size(); });
}
sluice_status* sluice_plan_input(const sluice_plan* plan, size_t index, sluice_port* port) {
  return guarded([&] {
    give_port(get<PlanObject>(plan, "sluice_plan_input", "a plan")->inputs, index, port, "sluice_plan_input");
  });
}
sluice_status* sluice_plan_output(const sluice_plan* plan, size_t index, sluice_port* port) {
  return guarded([&] {
    give_port(get<PlanObject>(plan, "sluice_plan_output", "a plan")->outputs, index, port, "sluice_plan_output");
  });
}
uint64_t sluice_plan_memory_bytes(const sluice_plan* plan) {
  return answered<uint64_t>(0, [&] { return get<PlanObject>(plan, "", "")->plan.memory_bytes(); });
}
sluice_status* sluice_plan_verify(const sluice_plan* plan) {
  return guarded([&] {
    const std::string problems = get<PlanObject>(plan, "sluice_plan_verify", "a plan")->plan.verify();
    if (!problems.empty()) fail(ErrorKind::kValue, problems);
  });
}

sluice_status* sluice_arenas_create(sluice_engine* engine, sluice_arenas** arenas) {
  return guarded([&] {
    const char* where = "sluice_arenas_create";
    check_pointer(arenas, where, "arenas");
    const auto owner = get<api::Engine>(engine, where, "an engine");
    *arenas =
        handles().add<sluice_arenas>(std::make_shared<ArenasObject>(ArenasObject{owner, api::SharedArenas(*owner)}));
  });
}
sluice_status* sluice_arenas_reserve(sluice_arenas* arenas, const sluice_plan* plan) {
  return guarded([&] {
    const char* where = "sluice_arenas_reserve";
    const auto object = get<ArenasObject>(arenas, where, "arenas");
    object->arenas.reserve(get<PlanObject>(plan, where, "a plan")->plan);
  });
}
uint64_t sluice_arenas_bytes(const sluice_arenas* arenas) {
  return answered<uint64_t>(0, [&] { return get<ArenasObject>(arenas, "", "")->arenas.bytes(); });
}
void sluice_arenas_destroy(sluice_arenas* arenas) { handles().remove(arenas); }

sluice_status* sluice_session_load(sluice_engine* engine, const char* bundle, const sluice_session_options* options,
                                   sluice_session** session) {
  return guarded([&] {
    const char* where = "sluice_session_load";
    check_pointer(session, where, "session");
    const auto owner = get<api::Engine>(engine, where, "an engine");
    check_pointer(bundle, where, "bundle");
    const sluice_session_options o = read_options(options, SLUICE_SESSION_OPTIONS_INIT, where);
    api::SessionOptions given;
    given.max_in_flight = o.max_in_flight;
    given.check_numerics = o.check_numerics != 0;
    given.zero_copy = o.zero_copy != 0;
    given.submit_timeout = timeout_of(o.submit_timeout_ms, where, "submit_timeout_ms");
    given.wait_timeout = timeout_of(o.wait_timeout_ms, where, "wait_timeout_ms");
    if (o.arenas != nullptr) given.arenas = get<ArenasObject>(o.arenas, where, "arenas")->arenas;
    *session = handles().add<sluice_session>(
        std::make_shared<SessionObject>(SessionObject{owner, api::Session::load(*owner, bundle, std::move(given))}));
  });
}

void sluice_session_destroy(sluice_session* session) { handles().remove(session); }

size_t sluice_session_num_inputs(const sluice_session* session) {
  return answered<size_t>(0, [&] { return get<SessionObject>(session, "", "")->session.inputs().size(); });
}
size_t sluice_session_num_outputs(const sluice_session* session) {
  return answered<size_t>(0, [&] { return get<SessionObject>(session, "", "")->session.outputs().size(); });
}
sluice_status* sluice_session_input(const sluice_session* session, size_t index, sluice_port* port) {
  return guarded([&] {
    const char* where = "sluice_session_input";
    give_port(get<SessionObject>(session, where, "a session")->inputs, index, port, where);
  });
}
sluice_status* sluice_session_output(const sluice_session* session, size_t index, sluice_port* port) {
  return guarded([&] {
    const char* where = "sluice_session_output";
    give_port(get<SessionObject>(session, where, "a session")->outputs, index, port, where);
  });
}

sluice_status* sluice_session_run(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                  sluice_tensor** outputs, size_t num_outputs) {
  return guarded([&] {
    const char* where = "sluice_session_run";
    const auto object = get<SessionObject>(session, where, "a session");
    const auto tensors = tensors_of(inputs, num_inputs, object->session.inputs().size(), where);
    check_outputs(outputs, num_outputs, object->session.outputs().size(), where);
    give(object->session.run(tensors), outputs);
  });
}

sluice_status* sluice_session_submit(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                     sluice_step** step) {
  return guarded([&] {
    const char* where = "sluice_session_submit";
    check_pointer(step, where, "step");
    auto object = get<SessionObject>(session, where, "a session");
    const auto tensors = tensors_of(inputs, num_inputs, object->session.inputs().size(), where);
    api::Result result = object->session.submit(tensors);
    *step = handles().add<sluice_step>(std::make_shared<StepObject>(StepObject{std::move(object), std::move(result)}));
  });
}

sluice_status* sluice_session_hand_over(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                        sluice_step** step) {
  return guarded([&] {
    const char* where = "sluice_session_hand_over";
    check_pointer(step, where, "step");
    auto object = get<SessionObject>(session, where, "a session");
    auto made = std::make_shared<StepObject>(StepObject{object, {}});
    sluice_step* const handle = handles().add<sluice_step>(made);
    try {
      made->result = object->session.hand_over(tensors_of(inputs, num_inputs, object->session.inputs().size(), where));
    } catch (...) {
      handles().remove(handle);
      throw;
    }
    for (size_t i = 0; i < num_inputs; ++i) handles().remove(inputs[i]);
    *step = handle;
  });
}

sluice_status* sluice_session_wait_all(sluice_session* session) {
  return guarded([&] { get<SessionObject>(session, "sluice_session_wait_all", "a session")->session.wait_all(); });
}
sluice_status* sluice_session_reset(sluice_session* session) {
  return guarded([&] { get<SessionObject>(session, "sluice_session_reset", "a session")->session.reset(); });
}
sluice_status* sluice_session_stop(sluice_session* session) {
  return guarded([&] { get<SessionObject>(session, "sluice_session_stop", "a session")->session.stop(); });
}

int sluice_step_ready(const sluice_step* step) {
  return answered(0, [&] { return get<StepObject>(step, "", "")->result.ready() ? 1 : 0; });
}
sluice_status* sluice_step_wait(sluice_step* step, int64_t timeout_ms) {
  return guarded([&] {
    const char* where = "sluice_step_wait";
    const auto object = get<StepObject>(step, where, "a step");
    if (timeout_ms < 0)
      object->result.get();
    else
      object->result.get(timeout_of(timeout_ms, where, "timeout_ms"));
  });
}
sluice_status* sluice_step_outputs(sluice_step* step, sluice_tensor** outputs, size_t num_outputs) {
  return guarded([&] {
    const char* where = "sluice_step_outputs";
    const auto object = get<StepObject>(step, where, "a step");
    check_outputs(outputs, num_outputs, object->session->session.outputs().size(), where);
    give(object->result.get(), outputs);
  });
}
void sluice_step_destroy(sluice_step* step) { handles().remove(step); }
