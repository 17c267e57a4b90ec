#include "cuda/fake_driver/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda/fake_driver/modules.h"

namespace fake_cuda {

thread_local Context* current_context = nullptr;
thread_local StreamState* capturing_stream = nullptr;

namespace {

// A thread must not call these while it captures: it may wait for the device, or makes it wait.
const std::set<std::string> kUnsafeInCapture = {
    "cuMemAlloc_v2",   "cuMemFree_v2",     "cuMemHostAlloc", "cuMemFreeHost",      "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2", "cuModuleLoadData", "cuEventQuery",   "cuEventSynchronize", "cuStreamSynchronize"};

}  // namespace

// Every task has room for the parameters of an ordinary kernel from the start.
StreamState::StreamState() : ring(kRing) {
  for (Task& task : ring) {
    task.values.reserve(512);
    task.params.reserve(32);
  }
}

Machine& Machine::get() {
  static auto* const machine = [] {
    auto* made = new Machine();
    std::atexit([] {
      Machine& m = get();
      const std::lock_guard lock(m.mutex);
      for (const std::string& text : m.violations) std::fprintf(stderr, "fake CUDA driver: %s\n", text.c_str());
      if (!m.violations.empty()) _exit(86);
    });
    const char* seed = std::getenv("FAKE_CUDA_SEED");
    if (seed != nullptr) made->random.seed(std::strtoull(seed, nullptr, 10));
    return made;
  }();
  return *machine;
}

void Machine::violation(const std::string& text) {
  if (violations.size() < 100) violations.push_back(text);
}

CUresult Machine::enter(const char* function, Context* context) {
  for (size_t i = 0; i < injected.size(); ++i) {
    if (injected[i].function != function || --injected[i].countdown > 0) continue;
    const CUresult result = injected[i].result;
    injected.erase(injected.begin() + static_cast<std::ptrdiff_t>(i));
    return result;
  }
  if (capturing_stream != nullptr && kUnsafeInCapture.contains(function)) {
    capturing_stream->capture_broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (context == nullptr) return CUDA_SUCCESS;
  if (current_context != context) {
    violation(fmt::format("{}: the context of device {} is not the calling thread's", function, context->device));
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return context->broken;
}

StreamState* Machine::new_stream() {
  size_t index = 0;
  while (index < streams.size() && streams[index]->alive) ++index;
  if (index == kStreams || current_context == nullptr) return nullptr;
  if (index == streams.size()) streams.push_back(std::make_unique<StreamState>());
  StreamState& stream = *streams[index];  // with the clock of the one before it, which is all done
  stream.context = current_context;
  stream.index = static_cast<int>(index);
  stream.alive = true;
  stream.legacy = false;
  return &stream;
}

StreamState* Machine::stream(CUstream handle) {
  if (handle == CU_STREAM_LEGACY) {
    for (const auto& known : streams) {
      if (known->legacy && known->context == current_context) return known.get();
    }
    StreamState* made = new_stream();
    if (made != nullptr) made->legacy = true;
    return made;
  }
  auto* found = reinterpret_cast<StreamState*>(handle);
  for (const auto& known : streams) {
    if (known.get() == found && known->alive) return found;
  }
  violation("a stream that was destroyed, or never was one");
  return nullptr;
}

EventState* Machine::event(CUevent handle) {
  auto* found = reinterpret_cast<EventState*>(handle);
  if (found->alive) return found;
  violation("an event that was destroyed");
  return nullptr;
}

Graph* Machine::new_graph(Graph graph) { return graphs.emplace_back(std::make_unique<Graph>(std::move(graph))).get(); }

CUresult Machine::destroy_graph(const void* handle) {
  if (std::erase_if(graphs, [&](const auto& known) { return known.get() == handle; }) == 1) return CUDA_SUCCESS;
  violation("a graph is destroyed twice, or never was one");
  return CUDA_ERROR_INVALID_VALUE;
}

Task& Machine::next(Lock& lock, StreamState& stream) {
  run_until(lock, [&] { return stream.queued - stream.executed < StreamState::kRing; });
  return stream.ring[stream.queued % StreamState::kRing];
}

void Machine::push(StreamState& stream) { ++stream.queued; }

void Machine::access(StreamState& stream, const Access& access, const char* name) {
  if (access.bytes == 0) return;
  if (memory.is_device(access.data)) {
    if (!memory.alive(access.data, access.bytes)) {
      return violation(fmt::format("{} on stream {} {} {} bytes at {}, which are not allocated", name, stream.index,
                                   access.writes ? "writes" : "reads", access.bytes, access.data));
    }
  }
  const std::string wrong = races.add(access, stream.index, stream.clock, name);
  if (!wrong.empty()) violation(wrong);
}

bool Machine::runnable(const StreamState& stream) const {
  if (stream.busy || stream.executed == stream.queued) return false;
  const Task& task = stream.ring[stream.executed % StreamState::kRing];
  return task.kind != TaskKind::kWait || task.event->completed >= task.recording;
}

bool Machine::none_busy() const {
  for (const auto& stream : streams) {
    if (stream->busy) return false;
  }
  return true;
}

bool Machine::step(Lock& lock) {
  size_t count = 0;
  for (const auto& stream : streams) count += runnable(*stream);
  if (count == 0) return false;
  size_t choice = random() % count;
  for (const auto& stream : streams) {
    if (!runnable(*stream) || choice-- > 0) continue;
    execute(lock, *stream);
    return true;
  }
  return false;
}

void Machine::some_progress(Lock& lock) {
  if (lazy) return;
  for (uint64_t n = random() % 8 == 0 ? random() % 6 : 0; n > 0 && step(lock); --n) {
  }
}

void Machine::execute(Lock& lock, StreamState& stream) {
  Task& task = stream.ring[stream.executed % StreamState::kRing];
  const bool broken = stream.context->broken != CUDA_SUCCESS;
  stream.busy = true;
  switch (task.kind) {
    case TaskKind::kKernel:
      if (broken) break;
      ++counted.kernels;
      if (break_countdown > 0 && --break_countdown == 0) {
        stream.context->broken = break_result;
        break;
      }
      lock.unlock();
      launch_size = {task.blocks, task.threads};
      task.function->run(task.params.data());
      lock.lock();
      break;
    case TaskKind::kCopy:
      ++counted.copies;
      counted.large_copies += task.bytes >= 1024;
      if (!broken) std::memcpy(memory.shadow(task.to), memory.shadow(task.from), task.bytes);
      break;
    case TaskKind::kSet:
      if (!broken) std::memset(memory.shadow(task.to), task.byte, task.bytes);
      break;
    case TaskKind::kRecord: task.event->completed = task.recording; break;
    case TaskKind::kWait: ++counted.waits; break;
  }
  ++stream.executed;
  stream.busy = false;
  changed.notify_all();
}

// Controls.

void* shadow(const void* data) { return Machine::get().memory.shadow(data); }

void seed(uint64_t seed) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.random.seed(seed);
}

void set_lazy(bool lazy) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.lazy = lazy;
}

void fail_call(const std::string& function, int nth, CUresult result) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.injected.push_back({function, nth, result});
}

int calls_to_fail() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  return static_cast<int>(m.injected.size());
}

void break_kernel(int nth, CUresult result) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.break_countdown = nth;
  m.break_result = result;
}

void repair() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  m.break_countdown = 0;
  m.injected.clear();
  for (const auto& context : m.contexts) context->broken = CUDA_SUCCESS;
}

Counts counts() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  Counts now = m.counted;
  for (const auto& stream : m.streams) now.streams += stream->alive && !stream->legacy;
  for (const auto& event : m.events) now.events += event->alive;
  for (const auto& context : m.contexts) now.contexts += context->retained > 0;
  now.graphs = m.graphs.size();
  now.device_bytes = m.memory.used();
  now.pinned_blocks = m.pinned.size();
  return now;
}

std::vector<std::string> take_violations() {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  return std::exchange(m.violations, {});
}

}  // namespace fake_cuda
