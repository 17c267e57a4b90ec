// cuDNN's functions, by the names it exports.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "cuda/fake_cudnn/fake_cudnn.h"
#include "cuda/fake_cudnn/graph.h"
#include "cuda/fake_driver/fake_driver.h"

using namespace fake_cudnn;

struct cudnnContext {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  std::atomic<std::thread::id> user{};  // who has said where its work goes, and has not queued it yet
};

namespace {

struct Injected {
  std::string function;
  int countdown;
  cudnnStatus_t status;
};
std::mutex mutex;  // of what follows
// The first is told by the environment: which execution fails.
std::vector<Injected> injected = [] {
  const char* nth = std::getenv("FAKE_CUDNN_FAILS");
  return nth == nullptr ? std::vector<Injected>{}
                        : std::vector<Injected>{{"cudnnBackendExecute", std::atoi(nth), CUDNN_STATUS_EXECUTION_FAILED}};
}();
Counts counted;
constexpr int kMostOperations = 8;
std::atomic<int> most_operations{kMostOperations};
thread_local std::string last_error;

cudnnStatus_t told(const char* function, cudnnStatus_t status, const char* why = "refused") {
  if (status != CUDNN_STATUS_SUCCESS) last_error = std::string("fake ") + function + ": " + why;
  return status;
}

cudnnStatus_t enter(const char* function) {
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < injected.size(); ++i) {
    if (injected[i].function != function || --injected[i].countdown > 0) continue;
    const cudnnStatus_t status = injected[i].status;
    injected.erase(injected.begin() + static_cast<std::ptrdiff_t>(i));
    return told(function, status);
  }
  return CUDNN_STATUS_SUCCESS;
}

// A plan as a kernel of the fake driver, whose parameters are the operands' addresses and the workspace's. Launches may
// outlive the plan, so it stays.
fake_cuda::Function& kernel_of(const DescriptorPtr& plan) {
  static auto* const all = new std::deque<std::pair<DescriptorPtr, fake_cuda::Function>>();
  const std::lock_guard lock(mutex);
  for (auto& [known, function] : *all) {
    if (known == plan) return function;
  }
  const Descriptor* config = &plan->at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto operands = operands_of(*config->graph);
  fake_cuda::Function& function = all->emplace_back(plan, fake_cuda::Function{}).second;
  function.name = "cuDNN's engine " + std::to_string(config->engine.index);
  for (const Operand& operand : operands)
    function.param_bytes.push_back(operand.by_value() ? operand.bytes() : sizeof(void*));
  function.param_bytes.push_back(sizeof(void*));
  const auto workspace_bytes = static_cast<uint64_t>(config->engine.workspace_bytes);
  const auto pointer = [](void* param) { return *static_cast<void**>(param); };
  function.accesses = [=](void** params, std::vector<fake_cuda::Access>& accesses) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (!operands[i].by_value()) accesses.push_back({pointer(params[i]), operands[i].bytes(), operands[i].written});
    if (workspace_bytes > 0) accesses.push_back({pointer(params[operands.size()]), workspace_bytes, true});
  };
  function.run = [=](void** params) {
    std::map<int64_t, void*> data;
    for (size_t i = 0; i < operands.size(); ++i)
      data[operands[i].uid()] = operands[i].by_value() ? params[i] : fake_cuda::shadow(pointer(params[i]));
    if (workspace_bytes > 0) std::memset(fake_cuda::shadow(pointer(params[operands.size()])), 0xcd, workspace_bytes);
    compute(*config->graph, config->engine, data);
  };
  return function;
}

cudnnStatus_t launch(cudnnHandle_t handle, const DescriptorPtr& plan, const Descriptor& pack) {
  const Descriptor& config = plan->at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto uids = pack.values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::deque<void*> values;
  std::vector<void*> params;
  bool any_address = false;
  for (const Operand& operand : operands_of(*config.graph)) {
    const auto uid = std::find(uids.begin(), uids.end(), operand.uid());
    if (uid == uids.end()) return told("cudnnBackendExecute", CUDNN_STATUS_BAD_PARAM, "an operand is not given");
    void* data = pointers[static_cast<size_t>(uid - uids.begin())];
    if (operand.by_value() != (fake_cuda::shadow(data) == data))
      return told("cudnnBackendExecute", CUDNN_STATUS_BAD_PARAM, "an operand is not where its tensor says");
    params.push_back(operand.by_value() ? data : &values.emplace_back(data));
    if (operand.by_value()) continue;
    const auto alignment = operand.tensor->value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    any_address |= alignment < 16;
    if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) != 0)
      return told("cudnnBackendExecute", CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  }
  values.push_back(pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  params.push_back(&values.back());
  if (config.engine.workspace_bytes > 0 && values.back() == nullptr)
    return told("cudnnBackendExecute", CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no workspace");
  const CUresult result = cuLaunchKernel(fake_cuda::handle_of(kernel_of(plan)), 1, 1, 1, 1, 1, 1, 0, handle->stream,
                                         params.data(), nullptr);
  if (result != CUDA_SUCCESS) return told("cudnnBackendExecute", CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  const std::lock_guard lock(mutex);
  ++counted.executed;
  counted.fused += config.graph->attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).count > 1;
  counted.misaligned += any_address;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

FAKE_CUDNN_API const Controls* fake_cudnn_controls() {
  static constexpr Controls kControls{[](const char* function, int nth, cudnnStatus_t status) {
                                        const std::lock_guard lock(mutex);
                                        injected.push_back({function, nth, status});
                                      },
                                      [](int most) { most_operations = most; },
                                      [] {
                                        const std::lock_guard lock(mutex);
                                        return counted;
                                      }};
  return &kControls;
}

FAKE_CUDNN_API size_t cudnnGetVersion() { return CUDNN_VERSION; }

FAKE_CUDNN_API const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    default: return "CUDNN_STATUS of the fake's";
  }
}

FAKE_CUDNN_API void cudnnGetLastErrorString(char* message, size_t bytes) {
  std::strncpy(message, last_error.c_str(), bytes);
  last_error.clear();
}

FAKE_CUDNN_API cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (const cudnnStatus_t status = enter("cudnnCreate"); status != CUDNN_STATUS_SUCCESS) return status;
  CUcontext context = nullptr;
  if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr)
    return told("cudnnCreate", CUDNN_STATUS_NOT_INITIALIZED, "no context is current");
  *handle = new cudnnContext;
  (*handle)->context = context;
  return CUDNN_STATUS_SUCCESS;
}

FAKE_CUDNN_API cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (const cudnnStatus_t status = enter("cudnnSetStream"); status != CUDNN_STATUS_SUCCESS) return status;
  const std::thread::id self = std::this_thread::get_id(), before = handle->user.exchange(self);
  if (before != std::thread::id() && before != self)
    return told("cudnnSetStream", CUDNN_STATUS_INTERNAL_ERROR, "another thread uses the handle");
  handle->stream = stream;
  std::this_thread::yield();  // so that others come in between, if they can
  return CUDNN_STATUS_SUCCESS;
}

FAKE_CUDNN_API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                          cudnnBackendDescriptor_t* descriptor) {
  if (const cudnnStatus_t status = enter("cudnnBackendCreateDescriptor"); status != CUDNN_STATUS_SUCCESS) return status;
  *descriptor = new Handle{std::make_shared<Descriptor>(Descriptor{.type = type})};
  const std::lock_guard lock(mutex);
  ++counted.descriptors;
  return CUDNN_STATUS_SUCCESS;
}

FAKE_CUDNN_API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &handle_of(descriptor);
  const std::lock_guard lock(mutex);
  --counted.descriptors;
  return CUDNN_STATUS_SUCCESS;
}

FAKE_CUDNN_API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                      cudnnBackendAttributeName_t name,
                                                      cudnnBackendAttributeType_t type, int64_t count,
                                                      const void* values) {
  if (const cudnnStatus_t status = enter("cudnnBackendSetAttribute"); status != CUDNN_STATUS_SUCCESS) return status;
  return told("cudnnBackendSetAttribute", set_attribute(*handle_of(descriptor).descriptor, name, type, count, values));
}

FAKE_CUDNN_API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (const cudnnStatus_t status = enter("cudnnBackendFinalize"); status != CUDNN_STATUS_SUCCESS) return status;
  Descriptor& d = *handle_of(descriptor).descriptor;
  if (const cudnnStatus_t status = finalise(d); status != CUDNN_STATUS_SUCCESS)
    return told("cudnnBackendFinalize", status, "attributes are missing or do not fit");
  const auto operations = [&d] {
    return d.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).count;
  };
  const bool refused = (d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && operations() > most_operations) ||
                       (d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
                        !d.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine.plannable);
  return told("cudnnBackendFinalize", refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS);
}

FAKE_CUDNN_API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                      cudnnBackendAttributeName_t name,
                                                      cudnnBackendAttributeType_t type, int64_t most, int64_t* count,
                                                      void* values) {
  if (const cudnnStatus_t status = enter("cudnnBackendGetAttribute"); status != CUDNN_STATUS_SUCCESS) return status;
  const Descriptor& d = *handle_of(descriptor).descriptor;
  if (!d.finalised) return told("cudnnBackendGetAttribute", CUDNN_STATUS_NOT_INITIALIZED, "it is not finalised");
  const auto number = [&](int64_t value) {
    if (type != CUDNN_TYPE_INT64 || most < 1) return told("cudnnBackendGetAttribute", CUDNN_STATUS_BAD_PARAM);
    *count = 1;
    std::memcpy(values, &value, sizeof(value));
    return CUDNN_STATUS_SUCCESS;
  };
  // Into descriptors that the caller has made.
  const auto fill = [&](cudnnBackendDescriptorType_t kind, const std::vector<Engine>& engines,
                        const DescriptorPtr& graph) {
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return told("cudnnBackendGetAttribute", CUDNN_STATUS_BAD_PARAM);
    // Announces one more than there is, as the library does now and then.
    *count = static_cast<int64_t>(engines.size()) + 1;
    if (most == 0) return CUDNN_STATUS_SUCCESS;
    *count = std::min(*count - 1, most);
    for (int64_t i = 0; i < *count; ++i) {
      Descriptor& to = *handle_of(static_cast<cudnnBackendDescriptor_t*>(values)[i]).descriptor;
      if (to.type != kind) return told("cudnnBackendGetAttribute", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
      to.engine = engines[static_cast<size_t>(i)];
      to.graph = graph;
      to.finalised = true;
    }
    return CUDNN_STATUS_SUCCESS;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const DescriptorPtr& graph = d.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).descriptors[0];
      return fill(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                  proposals(*graph, d.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)), graph);
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: return fill(CUDNN_BACKEND_ENGINE_DESCRIPTOR, {d.engine}, d.graph);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: return number(d.engine.index);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      if (type != CUDNN_TYPE_NUMERICAL_NOTE) return told("cudnnBackendGetAttribute", CUDNN_STATUS_BAD_PARAM);
      *count = std::min<int64_t>(most, static_cast<int64_t>(d.engine.notes.size()));
      std::copy_n(d.engine.notes.begin(), *count, static_cast<cudnnBackendNumericalNote_t*>(values));
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return number(d.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine.workspace_bytes);
    default: return told("cudnnBackendGetAttribute", CUDNN_STATUS_BAD_PARAM);
  }
}

FAKE_CUDNN_API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                                 cudnnBackendDescriptor_t pack) {
  if (const cudnnStatus_t status = enter("cudnnBackendExecute"); status != CUDNN_STATUS_SUCCESS) return status;
  if (handle->user.load() != std::this_thread::get_id())
    return told("cudnnBackendExecute", CUDNN_STATUS_INTERNAL_ERROR, "another thread uses the handle");
  CUcontext context = nullptr;
  static_cast<void>(cuCtxGetCurrent(&context));
  const DescriptorPtr given = handle_of(plan).descriptor;
  const Descriptor& operands = *handle_of(pack).descriptor;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (context != handle->context) {
    status = told("cudnnBackendExecute", CUDNN_STATUS_BAD_PARAM, "another context is current");
  } else if (given->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !given->finalised || !operands.finalised ||
             given->value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle) {
    status = told("cudnnBackendExecute", CUDNN_STATUS_BAD_PARAM, "not a plan of this handle");
  } else {
    status = launch(handle, given, operands);
  }
  handle->user = std::thread::id();
  return status;
}

}  // extern "C"
