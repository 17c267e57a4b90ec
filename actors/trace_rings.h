#pragma once
// Trace events of one run: a ring of fixed size for each stream, which holds its latest events. A stream writes its
// ring without waiting for anyone and without allocating, and rings a bell whenever it has filled another half of it; a
// reader copies what has come since it last looked, and counts what was overwritten before that.
//
// Thread safety: a ring is written by the thread of its stream alone; start(), take() and begin_unix_ns() from any
// thread.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/trace_bell.h"
#include "base/mutex.h"
#include "base/trace.h"

namespace sluice::actors {

// Invariants
//  1. Event i lies in slot i % kEvents; `written_` events are complete, and of event `claimed_ - 1` some words may be.
//  2. A reader that loads a word of event i with acquire sees claimed_ > i: so its copy is whole when claimed_ has not
//     come a round further by then.
class TraceRing {
 public:
  static constexpr uint64_t kEvents = 1 << 15;  // 1 MiB

  // begin_ns and end_ns of the event are times as now_ns() gives them. Keeps 40 bits of the step. Returns whether
  // another half of the ring is full. On the stream's thread.
  bool add(const TraceEvent& event);
  // Appends to `events`, as stream `stream`, what has come since the last call, or skip(). Returns how many events were
  // overwritten unread. One reader at a time.
  uint64_t take(int stream, std::vector<TraceEvent>& events);
  void skip() { read_ = written_.load(std::memory_order_acquire); }

 private:
  struct Slot {
    std::atomic<uint64_t> begin_ns, end_ns, step_kernels_flags, actor_kernel;
  };
  static_assert(sizeof(Slot) == 32);

  std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kEvents);
  alignas(64) std::atomic<uint64_t> claimed_{0};
  std::atomic<uint64_t> written_{0};
  alignas(64) uint64_t read_ = 0;
};

class TraceRings {
 public:
  // Begins a new trace: times count from now. The first call makes the rings. `bell` rings whenever a stream has filled
  // another half of its ring. REQUIRES: `streams` and `bell` are always the same, and `bell` outlives the rings.
  void start(size_t streams, TraceBell* bell = nullptr);
  // REQUIRES: start() happened before; on the stream's thread.
  void add(const TraceEvent& event) {
    if (!rings_[static_cast<size_t>(event.stream)]->add(event)) return;
    if (TraceBell* const bell = bell_.load(std::memory_order_relaxed)) bell->ring();
  }
  // Returns the events that have come since start(), or since the last call: by stream, and in the order of their ends.
  // Times count from start().
  Trace take();

 private:
  Mutex mutex_;  // of readers
  std::vector<std::unique_ptr<TraceRing>> rings_;
  std::atomic<TraceBell*> bell_{nullptr};
  int64_t origin_ns_ SLUICE_GUARDED_BY(mutex_) = 0;
  int64_t begin_unix_ns_ SLUICE_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::actors
