#pragma once
// How the driver's functions begin.
#include "cuda/fake_driver/machine.h"

namespace fake_cuda {

// The lock, and whether to go on.
struct Call {
  Call(const char* function, Context* context) : lock(m.mutex), result(m.enter(function, context)) {}
  bool refused() const { return result != CUDA_SUCCESS; }
  Machine& m = Machine::get();
  Machine::Lock lock;
  CUresult result;
};

// A call that queues work on a stream, or adds it to what the stream captures.
struct StreamCall : Call {
  StreamCall(const char* function, CUstream handle) : Call(function, nullptr) {
    if (refused()) return;
    stream = m.stream(handle);
    result = stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : m.enter("", stream->context);
    if (refused()) return;
    if (capturing() && capturing_stream != stream) {
      m.violation(fmt::format("{}: on stream {}, which another thread captures", function, stream->index));
    }
    if (capturing() && stream->capture_broken) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    m.some_progress(lock);
  }
  bool capturing() const { return stream->capture != nullptr; }
  // Breaks a capture that cannot hold a call.
  CUresult break_capture(CUresult why) {
    stream->capture_broken = true;
    return why;
  }
  // A task of this stream, after all that the host knows to be done.
  Task& task(TaskKind kind) {
    Task& task = capturing() ? stream->capture->nodes->emplace_back().task : m.next(lock, *stream);
    task.kind = kind;
    if (capturing()) return task;
    stream->clock.join(m.host);
    ++stream->clock.ticks[stream->index];
    return task;
  }
  void access(const Access& access, const char* name) {
    if (!capturing()) return m.access(*stream, access, name);
    stream->capture->nodes->back().accesses.push_back(access);
    stream->capture->nodes->back().name = name;
  }
  void push() {
    if (!capturing()) m.push(*stream);
  }
  StreamState* stream = nullptr;
};

}  // namespace fake_cuda
