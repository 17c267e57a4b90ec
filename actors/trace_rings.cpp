#include "actors/trace_rings.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace sluice::actors {
namespace {

constexpr int kStepBits = 40, kKernelsBits = 16;
constexpr uint64_t mask(int bits) { return (uint64_t{1} << bits) - 1; }

constexpr int kFlags = kStepBits + kKernelsBits;  // wait, left out, kernel; then the kind of the cause
constexpr int kCause = kFlags + 3;

// An event without a kernel has the number of its firing in the place of the kernels, and its cause's index in that of
// the kernel.
uint64_t packed(const TraceEvent& event) {
  const bool of_kernel = event.kernel >= 0;
  const auto count = static_cast<uint64_t>(of_kernel ? event.kernels : event.firing);
  return (event.step & mask(kStepBits)) | std::min(count, mask(kKernelsBits)) << kStepBits |
         static_cast<uint64_t>(event.wait) << kFlags | static_cast<uint64_t>(event.left_out) << (kFlags + 1) |
         static_cast<uint64_t>(of_kernel) << (kFlags + 2) | static_cast<uint64_t>(event.cause.kind) << kCause;
}

uint64_t packed(int actor, int other) {
  return static_cast<uint64_t>(static_cast<uint32_t>(actor)) << 32 | static_cast<uint32_t>(other);
}

}  // namespace

bool TraceRing::add(const TraceEvent& event) {
  const uint64_t index = written_.load(std::memory_order_relaxed);
  claimed_.store(index + 1, std::memory_order_relaxed);
  Slot& slot = slots_[index % kEvents];
  slot.begin_ns.store(static_cast<uint64_t>(event.begin_ns), std::memory_order_release);
  slot.end_ns.store(static_cast<uint64_t>(event.end_ns), std::memory_order_release);
  slot.step_kernels_flags.store(packed(event), std::memory_order_release);
  slot.actor_kernel.store(packed(event.actor, event.kernel >= 0 ? event.kernel : event.cause.index),
                          std::memory_order_release);
  written_.store(index + 1, std::memory_order_release);
  return (index + 1) % (kEvents / 2) == 0;
}

uint64_t TraceRing::take(int stream, std::vector<TraceEvent>& events) {
  const auto oldest = [](uint64_t count) { return count > kEvents ? count - kEvents : 0; };
  const uint64_t end = written_.load(std::memory_order_acquire);
  const uint64_t begin = std::max(read_, oldest(end));
  const size_t first = events.size();
  events.reserve(first + (end - begin));
  for (uint64_t i = begin; i < end; ++i) {
    const Slot& slot = slots_[i % kEvents];
    TraceEvent event;
    event.stream = stream;
    event.begin_ns = static_cast<int64_t>(slot.begin_ns.load(std::memory_order_acquire));
    event.end_ns = static_cast<int64_t>(slot.end_ns.load(std::memory_order_acquire));
    const uint64_t bits = slot.step_kernels_flags.load(std::memory_order_acquire);
    event.step = bits & mask(kStepBits);
    event.wait = (bits >> kFlags & 1) != 0;
    event.left_out = (bits >> (kFlags + 1) & 1) != 0;
    event.cause.kind = static_cast<TraceCause::Kind>(bits >> kCause);
    const auto count = static_cast<int>(bits >> kStepBits & mask(kKernelsBits));
    const bool of_kernel = (bits >> (kFlags + 2) & 1) != 0;
    (of_kernel ? event.kernels : event.firing) = count;
    const uint64_t who = slot.actor_kernel.load(std::memory_order_acquire);
    event.actor = static_cast<int>(static_cast<uint32_t>(who >> 32));
    (of_kernel ? event.kernel : event.cause.index) = static_cast<int>(static_cast<uint32_t>(who));
    events.push_back(event);
  }
  // Those that the stream has begun to overwrite meanwhile may be torn.
  const uint64_t whole = std::clamp(oldest(claimed_.load(std::memory_order_relaxed)), begin, end);
  const auto copied = events.begin() + static_cast<std::ptrdiff_t>(first);
  events.erase(copied, copied + static_cast<std::ptrdiff_t>(whole - begin));
  const uint64_t lost = whole - read_;
  read_ = end;
  return lost;
}

void TraceRings::start(size_t streams, TraceBell* bell) {
  const MutexLock lock(mutex_);
  bell_.store(bell, std::memory_order_relaxed);
  while (rings_.size() < streams) rings_.push_back(std::make_unique<TraceRing>());
  for (const auto& ring : rings_) ring->skip();
  origin_ns_ = now_ns();
  begin_unix_ns_ =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Trace TraceRings::take() {
  const MutexLock lock(mutex_);
  Trace trace;
  trace.begin_unix_ns = begin_unix_ns_;
  trace.begin_clock_ns = origin_ns_;
  for (size_t s = 0; s < rings_.size(); ++s) trace.lost += rings_[s]->take(static_cast<int>(s), trace.events);
  for (TraceEvent& event : trace.events) {
    event.begin_ns = std::max<int64_t>(event.begin_ns - origin_ns_, 0);
    event.end_ns = std::max<int64_t>(event.end_ns - origin_ns_, 0);
  }
  return trace;
}

}  // namespace sluice::actors
