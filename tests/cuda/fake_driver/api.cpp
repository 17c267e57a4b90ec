// The driver's functions, by the names it exports.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "cuda/fake_driver/calls.h"
#include "cuda/fake_driver/modules.h"
#include "cuda/fake_driver/nodes.h"

using namespace fake_cuda;

namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

Context* context_of(CUcontext handle) { return reinterpret_cast<Context*>(handle); }

// Copies with pageable memory are over when the call returns.
CUresult copy(const char* function, void* to, const void* from, size_t bytes, CUstream handle) {
  StreamCall call(function, handle);
  if (call.refused()) return call.result;
  Task& task = call.task(TaskKind::kCopy);
  task.to = to;
  task.from = from;
  task.bytes = bytes;
  call.access({from, bytes, false}, function);
  call.access({to, bytes, true}, function);
  call.push();
  const void* host = call.m.memory.is_device(to) ? from : to;
  if (call.m.memory.is_device(host)) return CUDA_SUCCESS;
  for (const auto& [start, size] : call.m.pinned) {
    const auto* begin = static_cast<const std::byte*>(start);
    if (host >= begin && static_cast<const std::byte*>(host) + bytes <= begin + size) return CUDA_SUCCESS;
  }
  if (call.capturing()) return call.break_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ++call.m.counted.pageable_copies;
  const uint64_t target = call.stream->queued;
  const Clock clock = call.stream->clock;
  call.m.run_until(call.lock, [&] { return call.stream->executed >= target; });
  call.m.host.join(clock);
  return call.stream->context->broken;
}

CUresult copy_now(const char* function, void* to, const void* from, size_t bytes) {
  Call call(function, current_context);
  if (call.refused()) return call.result;
  if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const void* device = call.m.memory.is_device(to) ? to : from;
  if (!call.m.memory.alive(device, bytes)) {
    call.m.violation(fmt::format("{}: {} bytes at {} are not allocated", function, bytes, device));
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::string who = call.m.races.unfinished({device, bytes, device == to}, call.m.host);
  if (!who.empty())
    call.m.violation(fmt::format("{}: {} may still be using {} bytes at {}", function, who, bytes, device));
  std::memcpy(call.m.memory.shadow(to), call.m.memory.shadow(from), bytes);
  if (device == from) return CUDA_SUCCESS;
  // Bytes from pageable memory have left it now, and may arrive later: other streams must wait for this one.
  StreamState* stream = call.m.stream(CU_STREAM_LEGACY);
  if (stream == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  stream->clock.join(call.m.host);
  ++stream->clock.ticks[stream->index];
  call.m.access(*stream, {to, bytes, true}, function);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

FAKE_CUDA_API CUresult cuInit(unsigned) {
  return from_environment("FAKE_CUDA_DEVICES", 2) > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

FAKE_CUDA_API CUresult cuDriverGetVersion(int* version) {
  *version = from_environment("FAKE_CUDA_VERSION", 13000);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: *text = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"; return CUDA_SUCCESS;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: *text = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; return CUDA_SUCCESS;
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: *text = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"; return CUDA_SUCCESS;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE_CUDA_API CUresult cuGetErrorString(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; return CUDA_SUCCESS;
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: *text = "too many resources requested for launch"; return CUDA_SUCCESS;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE_CUDA_API CUresult cuDeviceGetCount(int* count) {
  *count = from_environment("FAKE_CUDA_DEVICES", 2);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = Machine::get().memory.capacity();
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (static_cast<int>(attribute)) {
    case kNodeOfHost: return node_of_device(device, value);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE_CUDA_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned) { return CUDA_SUCCESS; }

FAKE_CUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain", nullptr);
  if (call.refused()) return call.result;
  while (static_cast<int>(call.m.contexts.size()) <= device) {
    call.m.contexts.push_back(std::make_unique<Context>());
    call.m.contexts.back()->device = static_cast<int>(call.m.contexts.size()) - 1;
  }
  Context* context = call.m.contexts[device].get();
  ++context->retained;
  *handle = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  Call call("cuDevicePrimaryCtxRelease_v2", nullptr);
  if (call.m.contexts.at(device)->retained-- > 0) return CUDA_SUCCESS;
  call.m.violation("a context is released more often than it was retained");
  return CUDA_ERROR_INVALID_CONTEXT;
}

FAKE_CUDA_API CUresult cuCtxGetCurrent(CUcontext* handle) {
  *handle = reinterpret_cast<CUcontext>(current_context);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuCtxSetCurrent(CUcontext handle) {
  current_context = context_of(handle);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuStreamCreate(CUstream* handle, unsigned) {
  Call call("cuStreamCreate", current_context);
  if (call.refused()) return call.result;
  StreamState* stream = call.m.new_stream();
  *handle = reinterpret_cast<CUstream>(stream);
  return stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

FAKE_CUDA_API CUresult cuStreamSynchronize(CUstream handle) {
  StreamCall call("cuStreamSynchronize", handle);
  if (call.refused()) return call.result;
  if (call.capturing()) return call.break_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const uint64_t target = call.stream->queued;
  const Clock clock = call.stream->clock;
  call.m.run_until(call.lock, [&] { return call.stream->executed >= target; });
  call.m.host.join(clock);
  return call.stream->context->broken;
}

FAKE_CUDA_API CUresult cuStreamDestroy(CUstream handle) {
  const CUresult result = cuStreamSynchronize(handle);
  Call call("cuStreamDestroy_v2", nullptr);
  StreamState* stream = call.m.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Work that a broken device has not executed is dropped.
  call.m.changed.wait(call.lock, [&] { return !stream->busy; });
  stream->executed = stream->queued;
  call.m.host.join(stream->clock);
  stream->alive = false;
  return result;
}

FAKE_CUDA_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  StreamCall call("cuStreamWaitEvent", handle);
  EventState* event = call.refused() ? nullptr : call.m.event(event_handle);
  if (event == nullptr) return call.refused() ? call.result : CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (call.capturing()) return call.break_capture(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  Task& task = call.task(TaskKind::kWait);
  task.event = event;
  task.recording = event->recorded;
  call.stream->clock.join(event->clock);
  call.m.push(*call.stream);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuEventCreate(CUevent* handle, unsigned) {
  Call call("cuEventCreate", current_context);
  if (call.refused()) return call.result;
  call.m.events.push_back(std::make_unique<EventState>());
  call.m.events.back()->context = current_context;
  *handle = reinterpret_cast<CUevent>(call.m.events.back().get());
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuEventDestroy(CUevent handle) {
  Call call("cuEventDestroy_v2", nullptr);
  if (EventState* event = call.m.event(handle); event != nullptr) event->alive = false;
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuEventRecord(CUevent event_handle, CUstream handle) {
  StreamCall call("cuEventRecord", handle);
  EventState* event = call.refused() ? nullptr : call.m.event(event_handle);
  if (event == nullptr) return call.refused() ? call.result : CUDA_ERROR_INVALID_HANDLE;
  if (event->context != call.stream->context) {
    call.m.violation("cuEventRecord: the event and the stream are of different devices");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  event->captured = call.capturing();
  if (event->captured) return CUDA_SUCCESS;
  Task& task = call.task(TaskKind::kRecord);
  task.event = event;
  task.recording = ++event->recorded;
  event->clock = call.stream->clock;
  call.m.push(*call.stream);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuEventQuery(CUevent handle) {
  Call call("cuEventQuery", current_context);
  if (call.refused()) return call.result;
  EventState* event = call.m.event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  call.m.some_progress(call.lock);
  if (event->completed < event->recorded) return CUDA_ERROR_NOT_READY;
  call.m.host.join(event->clock);
  return event->context->broken;
}

FAKE_CUDA_API CUresult cuEventSynchronize(CUevent handle) {
  Call call("cuEventSynchronize", current_context);
  if (call.refused()) return call.result;
  EventState* event = call.m.event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  const uint64_t target = event->recorded;
  const Clock clock = event->clock;
  call.m.counted.executed_late += event->completed < target;
  call.m.run_until(call.lock, [&] { return event->completed >= target; });
  call.m.host.join(clock);
  return event->context->broken;
}

FAKE_CUDA_API CUresult cuMemAlloc(CUdeviceptr* data, size_t bytes) {
  Call call("cuMemAlloc_v2", current_context);
  if (call.refused()) return call.result;
  if (bytes == 0 || current_context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *data = call.m.memory.allocate(bytes);
  return *data != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE_CUDA_API CUresult cuMemFree(CUdeviceptr data) {
  Call call("cuMemFree_v2", nullptr);
  const uint64_t bytes = call.m.memory.block(data);
  if (bytes == 0) {
    call.m.violation("cuMemFree: freed twice, or never allocated");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto* start = reinterpret_cast<const void*>(data);
  const bool broken = current_context != nullptr && current_context->broken != CUDA_SUCCESS;
  // It waits for all work of the device, on which nobody should rely; for the legacy stream it is the natural way.
  for (const auto& stream : call.m.streams) {
    if (stream->legacy && stream->context == current_context) call.m.host.join(stream->clock);
  }
  const std::string who = call.m.races.unfinished({start, bytes, true}, call.m.host);
  if (!who.empty() && !broken) call.m.violation(fmt::format("cuMemFree: {} may still be using the memory", who));
  call.m.races.forget(start, bytes);
  call.m.memory.free(data);
  return broken ? current_context->broken : CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuMemGetInfo(size_t* free, size_t* total) {
  Call call("cuMemGetInfo_v2", current_context);
  if (call.refused()) return call.result;
  *total = call.m.memory.capacity();
  *free = *total - call.m.memory.used();
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  Call call("cuMemHostAlloc", current_context);
  if (call.refused()) return call.result;
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*data == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  call.m.pinned[*data] = bytes;
  call.m.pinned_node[*data] = preferred_node();
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuMemFreeHost(void* data) {
  Call call("cuMemFreeHost", nullptr);
  const auto block = call.m.pinned.find(data);
  if (block == call.m.pinned.end()) {
    call.m.violation("cuMemFreeHost: freed twice, or never allocated");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::string who = call.m.races.unfinished({data, block->second, true}, call.m.host);
  if (!who.empty()) call.m.violation(fmt::format("cuMemFreeHost: {} may still be using the memory", who));
  call.m.races.forget(data, block->second);
  call.m.pinned.erase(block);
  call.m.pinned_node.erase(data);
  std::free(data);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_now("cuMemcpyHtoD_v2", reinterpret_cast<void*>(to), from, bytes);
}
FAKE_CUDA_API CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoH_v2", to, reinterpret_cast<void*>(from), bytes);
}
FAKE_CUDA_API CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy("cuMemcpyHtoDAsync_v2", reinterpret_cast<void*>(to), from, bytes, stream);
}
FAKE_CUDA_API CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy("cuMemcpyDtoHAsync_v2", to, reinterpret_cast<void*>(from), bytes, stream);
}
FAKE_CUDA_API CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy("cuMemcpyDtoDAsync_v2", reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, stream);
}

FAKE_CUDA_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream handle) {
  StreamCall call("cuMemsetD8Async", handle);
  if (call.refused()) return call.result;
  Task& task = call.task(TaskKind::kSet);
  task.to = reinterpret_cast<void*>(to);
  task.byte = byte;
  task.bytes = bytes;
  call.access({task.to, bytes, true}, "cuMemsetD8Async");
  call.push();
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  Call call("cuModuleLoadData", current_context);
  if (call.refused()) return call.result;
  *module = reinterpret_cast<CUmodule>(new Module(image));
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuModuleUnload(CUmodule module) {
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module, const char* name) {
  Call call("cuModuleGetFunction", current_context);
  if (call.refused()) return call.result;
  Function* function = reinterpret_cast<Module*>(module)->find(name);
  if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
  *handle = handle_of(*function);
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuLaunchKernel(CUfunction handle, unsigned blocks, unsigned, unsigned, unsigned threads,
                                      unsigned, unsigned, unsigned, CUstream stream, void** params, void**) {
  StreamCall call("cuLaunchKernel", stream);
  if (call.refused()) return call.result;
  auto* function = reinterpret_cast<Function*>(handle);
  call.m.counted.launches += !call.capturing();
  Task& task = call.task(TaskKind::kKernel);
  task.function = function;
  task.blocks = blocks;
  task.threads = threads;
  size_t bytes = 0;
  for (const size_t n : function->param_bytes) bytes += (n + 15) / 16 * 16;
  task.values.resize(bytes);
  task.params.clear();
  size_t at = 0;
  for (size_t i = 0; i < function->param_bytes.size(); ++i) {
    std::memcpy(task.values.data() + at, params[i], function->param_bytes[i]);
    task.params.push_back(task.values.data() + at);
    at += (function->param_bytes[i] + 15) / 16 * 16;
  }
  static thread_local std::vector<Access> accesses;
  accesses.clear();
  function->accesses(task.params.data(), accesses);
  for (const Access& access : accesses) call.access(access, function->name.c_str());
  call.push();
  return CUDA_SUCCESS;
}

}  // extern "C"
