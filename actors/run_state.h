#pragma once
// The state that the nodes of one run share: links between them, slot states, events, flags.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/message.h"
#include "actors/observer.h"
#include "actors/trace_rings.h"
#include "base/error.h"
#include "base/mutex.h"
#include "plan/firing/firing_counts.h"
#include "plan/plan.h"
#include "streams/stream.h"

namespace sluice::actors {

class MessageLog;
class Protocol;
class StreamExecutor;

// The events that a run tells its owner. Called on stream threads; must not block for long, throw or re-enter the run.
class RunListener {
 public:
  virtual ~RunListener() = default;
  // A sink fired. `outputs`: addresses of the plan's outputs that it consumes, in the plan's order; null when the
  // step failed. Valid until the call returns.
  virtual void on_sink(int actor, uint64_t step, const Status& status, void* const* outputs) = 0;
  // on_sink() neither takes long nor runs the program's code, so that any thread may call it.
  virtual bool sinks_are_brief() const { return false; }
  // The slots of a register that a feed produces may be written for its firings < `writable`: one more is free.
  virtual void on_input_slots(int reg, uint64_t writable) = 0;
  // A source has said that its data has ended. The run still makes everything for which there is data.
  virtual void on_data_end() {}
  // A sink will not fire again: its run was stopped, or the data of a source it depends on has ended.
  virtual void on_sink_end(int /*actor*/) {}
  // A firing failed of itself (not because of its inputs).
  virtual void on_failure(uint64_t step, const Status& status) = 0;
  // A collective was left out, because its firing has failed: other ranks wait for this one in vain.
  virtual void on_missed_collective(int /*kernel*/, const Status&) {}
  // A firing that reads or writes variables is over (launched, on devices with events).
  virtual void on_variables_done(bool writes) = 0;
};

// An edge of the plan, resolved.
struct alignas(64) EdgeLink {
  Node* consumer = nullptr;
  Node* producer = nullptr;
  int ready_port = 0, ack_port = 0;  // of the consumer; of the producer
  Cell* ready_cells = nullptr;       // per slot; null when both ends are on one stream
  Cell* ack_cells = nullptr;
  bool ack_direct = false;  // on one stream: neither end does more for an ack than count
};

// Bits of RunState::flags. While none is set, nodes without kernels take the short way.
inline constexpr uint32_t kRunPoisoned = 1;   // some firing has failed: tokens may carry failures
inline constexpr uint32_t kRunCancelled = 2;  // skip all kernels
inline constexpr uint32_t kRunTraced = 4;
inline constexpr uint32_t kRunObserved = 8;  // kernels are finished, and looked at, one by one

// Why a value is void: it is output `branch` of plan kernel `kernel`, which chose another, or was made of it. No
// kernel: it is not void.
struct NotTaken {
  int kernel = -1, branch = 0;
  explicit operator bool() const { return kernel >= 0; }
};

// A token may be poisoned, or void, or neither, besides its bytes. Nobody asks whether a poisoned token is also void,
// since a failed firing runs no kernel.
struct TokenState {
  Status failure;  // written once kRunPoisoned
  NotTaken not_taken;
};

// An event and whether it has been recorded since the plan was loaded. Written by the stream that records it, read by
// others after the message that says so.
struct SlotEvent {
  std::unique_ptr<Event> event;
  bool recorded = false;
};

// Counts the nodes that are done. Shared, because the last node's thread still holds it when the run may go.
class Completion {
 public:
  explicit Completion(int nodes) : remaining_(nodes) {}
  void node_done() {
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const MutexLock lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  bool done() {
    const MutexLock lock(mutex_);
    return done_;
  }
  // False when it took longer.
  bool wait(std::chrono::nanoseconds timeout) {
    MutexLock lock(mutex_);
    if (timeout <= timeout.zero()) return done_;  // the system would sleep for a moment even so
    return changed_.wait_for(lock, timeout, [&]() SLUICE_REQUIRES(mutex_) { return done_; });
  }

 private:
  std::atomic<int> remaining_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool done_ SLUICE_GUARDED_BY(mutex_) = false;
};

// Steps that their callers have given up, of those that are under way. Thread-safe.
class GivenUp {
 public:
  // One load where there is none.
  bool contains(uint64_t step) const { return step < below_.load(std::memory_order_acquire) && find(step); }
  void add(uint64_t step) {
    const MutexLock lock(mutex_);
    steps_.push_back(step);
    below_.store(std::max(below_.load(), step + 1), std::memory_order_release);
  }
  // Forgets those of which nothing is under way any more.
  template <class Done>
  void forget_if(Done&& done) {
    const MutexLock lock(mutex_);
    std::erase_if(steps_, done);
  }

 private:
  bool find(uint64_t step) const {
    const MutexLock lock(mutex_);
    return std::find(steps_.begin(), steps_.end(), step) != steps_.end();
  }
  std::atomic<uint64_t> below_{0};
  mutable Mutex mutex_;
  std::vector<uint64_t> steps_ SLUICE_GUARDED_BY(mutex_);
};

struct RunState {
  RunState(const plan::Plan& plan, RunListener& listener);
  ~RunState();

  const plan::Plan* plan;
  const plan::Adjacency adjacency;
  const plan::FiringCounts counts;
  RunListener* const listener;
  const bool sources_end;  // they may say that their data has ended; not where other ranks would wait in vain
  std::shared_ptr<Completion> completion;
  std::atomic<uint32_t> flags{0};
  std::vector<EdgeLink> links;                 // per edge
  std::vector<std::vector<std::byte*>> slots;  // per register: addresses of its slots
  std::vector<int> register_slots;             // per register: index of its first slot in the next two
  std::vector<TokenState> slot_states;         // written by the producer
  // Which registers and buffers of the plan may hold a void value: what a kernel with branches makes, and what is made
  // of that. Empty where there is no such kernel.
  std::vector<bool> void_registers, void_buffers;
  std::vector<SlotEvent> ready_events;
  // Two per register whose token several firings of an asynchronous stream make: the failures of those so far, and of
  // the one under way.
  std::vector<SlotEvent> span_events;
  // Per actor, of asynchronous streams: whether a late failure of its kernels may reach no sink; and then two events,
  // the failures so far and of the firing under way.
  std::vector<bool> unseen;
  std::vector<SlotEvent> unseen_events;
  std::vector<int> edge_slots;  // per edge: index of its first slot in the next
  std::vector<SlotEvent> ack_events;
  std::vector<Cell> end_cells;                        // per edge
  std::vector<std::atomic<uint64_t>> variable_steps;  // per variable: 1 + the last step that wrote it
  KernelObservers observers;
  GivenUp given_up;
  TraceRings trace;
  MessageLog* log = nullptr;           // of the order of messages, or null
  uint32_t first_message = 0;          // its number in the log
  uint64_t expected_starts = 0;        // of the start that is replayed next; 0: all there are
  std::unique_ptr<Protocol> protocol;  // of manual stepping that checks it, or null
};

}  // namespace sluice::actors
