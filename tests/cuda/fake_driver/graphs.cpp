// Stream capture, in its thread-local mode, and graphs.
#include <fmt/format.h>

#include "cuda/fake_driver/calls.h"

using namespace fake_cuda;

namespace {

void assign(Task& to, const Task& from) {
  to.kind = from.kind;
  to.function = from.function;
  to.blocks = from.blocks;
  to.threads = from.threads;
  to.to = from.to;
  to.from = from.from;
  to.bytes = from.bytes;
  to.byte = from.byte;
  to.values.assign(from.values.begin(), from.values.end());
  to.params.clear();
  for (void* param : from.params) {
    to.params.push_back(to.values.data() + (static_cast<std::byte*>(param) - from.values.data()));
  }
}

}  // namespace

extern "C" {

FAKE_CUDA_API CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  StreamCall call("cuStreamBeginCapture_v2", handle);
  if (call.refused()) return call.result;
  if (call.stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (call.capturing() || capturing_stream != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return CUDA_ERROR_INVALID_VALUE;
  call.stream->capture = std::make_unique<Graph>();
  call.stream->capture_broken = false;
  capturing_stream = call.stream;
  return CUDA_SUCCESS;
}

// A capture is over even when its end fails.
FAKE_CUDA_API CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Call call("cuStreamEndCapture", current_context);
  *graph = nullptr;
  StreamState* stream = call.m.stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capturing_stream != stream) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  capturing_stream = nullptr;
  const std::unique_ptr<Graph> captured = std::move(stream->capture);
  if (call.refused()) return call.result;
  if (stream->capture_broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *graph = reinterpret_cast<CUgraph>(call.m.new_graph(*captured));
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  Call call("cuGraphInstantiateWithFlags", current_context);
  if (call.refused()) return call.result;
  *executable = reinterpret_cast<CUgraphExec>(call.m.new_graph(*reinterpret_cast<const Graph*>(graph)));
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  StreamCall call("cuGraphLaunch", handle);
  if (call.refused()) return call.result;
  if (call.capturing()) return call.break_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ++call.m.counted.launches;
  ++call.m.counted.graph_launches;
  for (const Graph::Node& node : *reinterpret_cast<const Graph*>(executable)->nodes) {
    assign(call.task(node.task.kind), node.task);
    for (const Access& access : node.accesses) call.access(access, node.name.c_str());
    call.push();
  }
  return CUDA_SUCCESS;
}

FAKE_CUDA_API CUresult cuGraphDestroy(CUgraph graph) {
  Call call("cuGraphDestroy", nullptr);
  return call.m.destroy_graph(graph);
}

FAKE_CUDA_API CUresult cuGraphExecDestroy(CUgraphExec executable) {
  Call call("cuGraphExecDestroy", nullptr);
  return call.m.destroy_graph(executable);
}

}  // extern "C"
