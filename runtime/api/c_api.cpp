// The C API on top of the C++ one: statuses, tensors, engines, plans.
#include "runtime/api/c_support.h"
#include "sluice/version.h"

namespace api = sluice::api;
using namespace sluice::c_api;

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

namespace {

// Until all is well the memory is the caller's.
struct Release {
  void (*release)(void* context) = nullptr;
  void* context = nullptr;
};

// `make` gives a tensor of the memory.
template <class Make>
sluice_status* tensor_of_memory(const char* where, void* data, size_t bytes, Release release, sluice_tensor** tensor,
                                Make&& make) {
  return guarded([&] {
    check_pointer(tensor, where, "tensor");
    if (bytes > 0) check_pointer(data, where, "data");
    const auto armed = std::make_shared<Release>();
    const std::shared_ptr<void> memory(data, [armed](void*) {
      if (armed->release != nullptr) armed->release(armed->context);
    });
    api::Tensor made = make(memory);
    const size_t needed = data == nullptr ? 0 : made.bytes();
    if (bytes != needed)
      fail(ErrorKind::kValue, std::string(where) + ": " + std::to_string(bytes) + " bytes; " + made.str() + " has " +
                                  std::to_string(needed));
    *tensor = add_tensor(std::move(made));
    *armed = release;
  });
}

}  // namespace

sluice_status* sluice_tensor_from_memory(sluice_dtype dtype, const int64_t* shape, int rank, void* data, size_t bytes,
                                         void (*release)(void* context), void* context, sluice_tensor** tensor) {
  const char* where = "sluice_tensor_from_memory";
  return tensor_of_memory(where, data, bytes, {release, context}, tensor, [&](const std::shared_ptr<void>& memory) {
    return api::Tensor(dtype_of(dtype, where), shape_of(shape, rank, where), memory);
  });
}

sluice_status* sluice_tensor_from_device_memory(sluice_dtype dtype, const int64_t* shape, int rank, void* data,
                                                size_t bytes, const char* device, void (*release)(void* context),
                                                void* context, sluice_tensor** tensor) {
  const char* where = "sluice_tensor_from_device_memory";
  return tensor_of_memory(where, data, bytes, {release, context}, tensor, [&](const std::shared_ptr<void>& memory) {
    return api::Tensor(dtype_of(dtype, where), shape_of(shape, rank, where), memory,
                       check_pointer(device, where, "device"));
  });
}

void sluice_tensor_destroy(sluice_tensor* tensor) { handles().remove(tensor); }

void* sluice_tensor_data(const sluice_tensor* tensor) {
  return answered<void*>(nullptr, [&] { return get<api::Tensor>(tensor, "", "")->raw(); });
}
const char* sluice_tensor_device(const sluice_tensor* tensor) {
  return answered("", [&] { return kept_name(get<api::Tensor>(tensor, "", "")->device()); });
}
sluice_status* sluice_tensor_to(const sluice_tensor* tensor, sluice_engine* engine, const char* device,
                                sluice_tensor** copy) {
  return guarded([&] {
    const char* where = "sluice_tensor_to";
    check_pointer(copy, where, "copy");
    const auto from = get<api::Tensor>(tensor, where, "a tensor");
    const auto owner = get<api::Engine>(engine, where, "an engine");
    *copy = add_tensor(from->to(*owner, check_pointer(device, where, "device")));
  });
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
    timeout_of(o.stop_timeout_ms, where, "stop_timeout_ms");
    if (o.spin < 0 || o.spin > 2)
      fail(ErrorKind::kValue, std::string(where) + ": spin: " + std::to_string(o.spin) + "; must be 0, 1 or 2");
    api::EngineOptions given;
    given.cores = o.cores;
    given.watchdog_ms = o.watchdog_ms;
    given.stop_timeout_ms = o.stop_timeout_ms;
    if (o.allocate != nullptr)
      given.memory.allocate = [call = o.allocate, context = o.context](size_t bytes, size_t alignment) {
        return call(context, bytes, alignment);
      };
    if (o.release != nullptr)
      given.memory.release = [call = o.release, context = o.context](void* data, size_t bytes) {
        call(context, data, bytes);
      };
    given.spin = static_cast<api::Spin>(o.spin);
    if (o.num_cpus > 65536)
      fail(ErrorKind::kValue,
           std::string(where) + ": num_cpus: " + std::to_string(o.num_cpus) + "; must be 0 to 65536");
    if (o.num_cpus > 0) given.cpus.assign(check_pointer(o.cpus, where, "cpus"), o.cpus + o.num_cpus);
    *engine = handles().add<sluice_engine>(std::make_shared<api::Engine>(given));
  });
}

void sluice_engine_destroy(sluice_engine* engine) { handles().remove(engine); }

int sluice_engine_cores(const sluice_engine* engine) {
  return answered(0, [&] { return get<api::Engine>(engine, "", "")->cores(); });
}
uint64_t sluice_engine_memory_bytes(const sluice_engine* engine) {
  return answered<uint64_t>(0, [&] { return get<api::Engine>(engine, "", "")->memory_bytes(); });
}
uint64_t sluice_engine_peak_memory_bytes(const sluice_engine* engine) {
  return answered<uint64_t>(0, [&] { return get<api::Engine>(engine, "", "")->peak_memory_bytes(); });
}

sluice_status* sluice_engine_join(sluice_engine* engine, const sluice_world_options* options) {
  return guarded([&] {
    const char* where = "sluice_engine_join";
    const auto owner = get<api::Engine>(engine, where, "an engine");
    check_pointer(options, where, "options");
    const sluice_world_options o = read_options(options, SLUICE_WORLD_OPTIONS_INIT, where);
    api::WorldOptions given;
    given.rank = o.rank;
    given.size = o.ranks;
    given.master_host = check_pointer(o.master_host, where, "master_host");
    given.master_port = o.master_port;
    given.timeout_ms = o.timeout_ms;
    given.heartbeat_ms = o.heartbeat_ms;
    given.token = check_pointer(o.token, where, "token");
    owner->join(given);
  });
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

sluice_status* sluice_plan_load_memory(const void* archive, size_t bytes, sluice_plan** plan) {
  return guarded([&] {
    const char* where = "sluice_plan_load_memory";
    check_pointer(plan, where, "plan");
    check_pointer(archive, where, "archive");
    *plan = handles().add<sluice_plan>(std::make_shared<PlanObject>(PlanObject{api::Plan::load(archive, bytes)}));
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
size_t sluice_plan_num_actors(const sluice_plan* plan) {
  return answered<size_t>(0, [&] { return get<PlanObject>(plan, "", "")->actors.size(); });
}
const char* sluice_plan_actor(const sluice_plan* plan, size_t index) {
  return answered<const char*>(nullptr, [&] { return get<PlanObject>(plan, "", "")->actors.at(index).c_str(); });
}
size_t sluice_plan_num_kernels(const sluice_plan* plan) {
  return answered<size_t>(0, [&] { return static_cast<size_t>(get<PlanObject>(plan, "", "")->plan.kernels()); });
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
