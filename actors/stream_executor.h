#pragma once
// One host thread per stream: takes messages, runs the nodes they make ready, parks when there is nothing to do.
// Shared by all sessions of an engine that use the same (device, kind, index).
//
// Thread safety: post(), call(), run_sync(), name(), stream().synchronize() from any thread; the rest on the stream's
// own thread (manual stepping: on the thread that steps).
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "actors/busy_clock.h"
#include "actors/inbox.h"
#include "actors/message_probe.h"
#include "actors/ring.h"
#include "actors/trace_rings.h"
#include "base/interrupt.h"
#include "base/mutex.h"
#include "base/short_wait.h"
#include "plan/record/message_order.h"

namespace sluice {
class CoreLeases;
class Device;
class Stream;
class WorkerThreads;
}  // namespace sluice

namespace sluice::actors {

class MessageLog;

class StreamExecutor {
 public:
  struct Options {
    std::string name;                  // "cpu:0/compute0"
    CoreLeases* leases = nullptr;      // REQUIRES: outlives the executor
    Device* device = nullptr;          // REQUIRES: outlives the executor
    bool manual = false;               // no thread
    MessageProbe* probe = nullptr;     // of manual stepping; REQUIRES: outlives the executor
    WorkerThreads* workers = nullptr;  // of kernels, or null; REQUIRES: outlives the executor
    std::vector<int> cpus = {};        // that its thread, and the workers it starts, run on; empty: all
    MessageLog* log = nullptr;         // of the order of messages, or null; REQUIRES: outlives the executor
    bool spins = true;                 // may look for messages before it parks, where that pays
  };
  StreamExecutor(Options options, std::unique_ptr<Stream> stream);
  // REQUIRES: no node uses it any more.
  ~StreamExecutor();
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

  const std::string& name() const { return options_.name; }
  Stream& stream() const { return *stream_; }
  Device& device() const { return *options_.device; }
  bool manual() const { return options_.manual; }
  const CoreLeases* leases() const { return options_.leases; }
  bool on_thread() const;
  // The executor whose thread this is (manual stepping: that steps on it), or null.
  static StreamExecutor* current();
  // Gives back the cores that its thread holds, which may be stuck in a kernel. Any thread.
  void give_up_lease();

  void post(Cell* cell) {
    if (inbox_.put(cell)) [[unlikely]]
      on_parked(cell->wakes);
  }
  void call(std::function<void()> run);
  // The same for a call made before, which needs no memory.
  void post_call(std::unique_ptr<Call> call);
  // Runs `run` on the stream's thread and waits for it; rethrows what it throws. False, and nothing is run, when the
  // thread has not come to it in time, or has been left behind.
  bool run_sync(const std::function<void()>& run, std::chrono::nanoseconds timeout = kWaitForever);

  // Its thread is in a kernel that may never return: nobody need wait for it any longer. Any thread.
  void leave_behind() { left_behind_.store(true, std::memory_order_relaxed); }
  bool left_behind() const { return left_behind_.load(std::memory_order_relaxed); }

  // Room for `items` more messages, so that none of them has to allocate. Its own thread; undone by release_room().
  void reserve_room(size_t items) {
    ring_.reserve(room_.load(std::memory_order_relaxed) + items);
    room_.fetch_add(items, std::memory_order_relaxed);
  }
  void release_room(size_t items) { room_.fetch_sub(items, std::memory_order_relaxed); }

  // For nodes of this stream, on its thread.
  void post_local(const Item& item) { ring_.push(item); }
  // Holds `cores` cores of the machine until the queue is empty or unlease(). Returns how long it waited for them.
  int64_t lease(int cores);
  // The same where it need not wait; else false, and it holds none.
  bool try_lease(int cores);
  void unlease();
  // unlease() if somebody waits for cores.
  void offer_lease();

  // The time it is neither parked nor waits for a device or for cores.
  BusyClock& clock() { return clock_; }
  const BusyClock& clock() const { return clock_; }

  // Records into `rings`, as the plan's stream `lane`, when the stream is parked. Any thread.
  void add_tracer(TraceRings* rings, int lane);
  void remove_tracer(TraceRings* rings);

  // Manual stepping.
  MessageProbe* probe() const { return options_.probe; }
  MessageLog* message_log() const { return options_.log; }
  size_t pending();
  // Counts those of them that the probe does not hold back.
  size_t free_pending() const;
  // Delivers a message chosen by `random` among those that may come next: the first of some edge.
  void step(std::mt19937_64& random);
  // Replay: whether something waits that is no message of a plan; hands it on.
  bool step_call();
  // Handles message `id` of the log as `how` says, with `starts` starts. False where it does not wait here.
  bool step_recorded(uint32_t id, plan::Handled how, uint64_t starts);
  // Debugging: counts all messages that wait, but fires nobody. False where none has waited.
  bool step_counts();
  // One firing. REQUIRES: step_counts() has left nothing else, and the node can fire.
  void step_firing(const Node& node);
  void add_pending(const PendingMessage& message) { choices_.push_back(message); }
  // Takes out what is pending for nodes of a run that is over.
  std::vector<PendingMessage> take_pending(const Node* first, const Node* last);

 private:
  struct Tracer {
    TraceRings* rings;
    int lane;
  };
  friend class WakeLater;
  void run();
  void rest();
  void add_wait(int64_t begin_ns, int64_t end_ns);
  void on_parked(bool wakes);
  bool stand_in();
  void count(const Item& item);
  bool handle_promptly(int& firings);
  void drain_inbox();
  void discard_rest();
  void deliver(const Item& item);
  void handle_chosen(std::vector<PendingMessage>::iterator chosen, plan::Handled how);
  template <class Handle>
  void take_turn(std::vector<PendingMessage>::iterator chosen, Handle&& handle);
  [[gnu::noinline]] void record(const Item& item, plan::Handled how);
  std::vector<PendingMessage>::iterator choose(std::mt19937_64& random);

  Options options_;
  std::unique_ptr<Stream> stream_;
  Ring ring_;
  std::vector<PendingMessage> choices_;  // manual stepping: what is pending
  Mutex tracers_mutex_;
  std::vector<Tracer> tracers_ SLUICE_GUARDED_BY(tracers_mutex_);
  std::atomic<int> leased_{0};     // written by its thread, but for give_up_lease()
  std::atomic<size_t> room_{256};  // messages of all sessions, and some calls
  BusyClock clock_;
  Inbox inbox_;
  ShortWait short_wait_;
  int64_t rest_begin_ns_ = 0;  // of the rest under way
  std::atomic<bool> stopping_{false}, left_behind_{false};
  std::unique_ptr<Call> last_call_;  // made before, so that its end needs no memory
  std::thread thread_;
};

// Streams that get messages from this thread while one lives are woken, or stood in for, at its end, when the locks
// that it held are free: who is woken may run at once, in this thread's place, and need them.
class WakeLater {
 public:
  WakeLater();
  ~WakeLater();
  WakeLater(const WakeLater&) = delete;
  WakeLater& operator=(const WakeLater&) = delete;

 private:
  friend class StreamExecutor;
  struct Parked {
    StreamExecutor* stream;
    bool wakes;
  };
  bool add(StreamExecutor* parked, bool wakes) {
    if (size_ == parked_.size()) return false;
    parked_[size_++] = {parked, wakes};
    return true;
  }
  std::array<Parked, 16> parked_;
  size_t size_ = 0;
  WakeLater* const outer_;
};

}  // namespace sluice::actors
