#pragma once
// Runs a plan: makes its nodes on their streams, starts and ends them. Knows nothing of callers, inputs or results:
// those are its listener's.
//
// Thread safety: every method from any thread, except that start() and stop() must not race with each other.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "actors/build.h"
#include "actors/system.h"
#include "base/interrupt.h"
#include "base/mutex.h"

namespace sluice::actors {

struct RegisterCounts {
  uint64_t tokens = 0;  // written so far, initial ones apart
  int used = 0;         // slots that are not free
  int ready = 0;        // tokens that some reader has yet to take
  int peak = 0;         // the most slots ever used at once
};

class Runner {
 public:
  // REQUIRES: `plan`, what `bindings` point to and `listener` outlive the runner; the plan has been verified.
  // Throws what FiringCounts throws.
  Runner(const plan::Plan& plan, Bindings bindings, RunListener& listener);
  // REQUIRES: wait_done() was true, or activate() was never called.
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Lets the nodes run. Their first actions (initial tokens, free input slots) happen before it returns.
  // When it throws, actors are at work only if activated(). Throws kTimeout for a stream that others keep busy.
  void activate(std::chrono::nanoseconds timeout = kWaitForever);
  bool activated() const { return activated_; }
  // The start credits of so many steps to every source and feed.
  void start(uint64_t steps);
  // No more starts: what was started ends, then every node. Again: nothing.
  void stop();
  // From now on no kernel is started; tokens flow as if all had failed.
  void cancel() { set_flag(kRunCancelled, true); }
  // From now on no kernel of a step is started that its caller has given up; its tokens flow as if it had failed.
  void give_up(uint64_t step);
  // All nodes have ended and all slots are back. False after `timeout`.
  bool wait_done(std::chrono::nanoseconds timeout) { return run_.completion->wait(timeout); }

  // How many slots of a register circulate from now on, of those that the plan has. REQUIRES: 1 <= slots <= quota; its
  // slots are its own, and callers do not write them; not on a thread of its streams. False, and nothing has changed,
  // where the producer's stream does not come to it in time.
  bool set_quota(int reg, int slots, std::chrono::nanoseconds timeout);
  int quota(int reg) const { return quotas_[reg].load(std::memory_order_relaxed); }

  void set_flag(uint32_t flag, bool on);
  // From now on kernels run one by one, and each is looked at. REQUIRES: not activated yet.
  void observe(KernelObservers observers);
  bool flag(uint32_t flag) const { return (run_.flags.load(std::memory_order_acquire) & flag) != 0; }
  const plan::FiringCounts& counts() const { return run_.counts; }
  const plan::Adjacency& adjacency() const { return run_.adjacency; }
  // Called on the thread of one of its streams, so that waiting for the run would never end.
  bool on_own_thread() const;
  // Streams whose thread is in a kernel, or waits for cores or a device, right now.
  std::vector<StreamExecutor*> streams_at_work() const;
  // Addresses of a register's slots.
  const std::vector<std::byte*>& slots(int reg) const { return run_.slots[reg]; }
  // Another one. REQUIRES: the slot is free and the caller's to write, or held by a sink that fires and is its only
  // reader; `bindings` say that the register's memory is exchanged.
  void set_slot(int reg, int slot, std::byte* address) { run_.slots[reg][static_cast<size_t>(slot)] = address; }
  uint64_t firings(int actor) const { return nodes_[actor]->firings(); }
  uint64_t waits(int actor) const { return nodes_[actor]->waits(); }
  int64_t busy_ns(int actor) const { return nodes_[actor]->busy_ns(); }
  uint64_t left_out(int actor) const { return nodes_[actor]->left_out(); }
  // Per register; exact while nothing fires. Reads what the streams publish and waits for none of them.
  std::vector<RegisterCounts> register_counts() const;
  uint64_t total_firings() const;
  // Every actor has fired as often as `steps` start credits let it.
  bool has_fired(uint64_t steps) const;
  // 1 + the last step that wrote the variable; 0: none.
  uint64_t variable_step(int variable) const { return run_.variable_steps[variable].load(std::memory_order_acquire); }
  const std::vector<Node*>& nodes() const { return nodes_; }

  // Names the actors that keep `steps` started steps from being finished, one line per actor, at most `max_lines`; ""
  // when all is done.
  std::string wait_report(uint64_t steps, int max_lines = 12);

  // A late failure, of firings launched so far, that no sink will show; ok when there is none. Waits for the devices.
  Status take_unseen_failure();
  // Debugging, on streams that are stepped by hand. The actors that may fire next, once all messages that wait have
  // been counted, which fires nobody: the plan stands still, because nobody gets its turn.
  std::vector<int> ready_actors();
  // One firing. REQUIRES: ready_actors() has named the actor, and nothing has happened since.
  void fire_once(int actor);
  // Manual stepping that checks the protocol: the first breach, or what is missing; "" when all is well. REQUIRES:
  // nothing is pending.
  std::string protocol_breach();

  // Tracing of firings and kernels, and of the streams' waits. Switched off, what is under way still adds its events.
  // `bell` rings whenever a stream has filled half of its ring, and outlives the runner.
  void set_trace(bool on, TraceBell* bell = nullptr);
  // REQUIRES: it is off. From now on nothing more is added; false when that cannot be said after `timeout`.
  bool end_trace(std::chrono::nanoseconds timeout);
  Trace take_trace() { return run_.trace.take(); }

 private:
  void link();
  void discard_messages();
  std::vector<size_t> messages_per_stream() const;
  void destroy_nodes();
  std::string describe(const Node& node, uint64_t due, bool on_home_thread) const;

  RunState run_;
  Bindings bindings_;
  std::vector<StreamExecutor*> streams_;  // each once
  std::vector<int> stream_lanes_;         // the plan stream of each
  Node* storage_ = nullptr;               // one block: neighbours in the plan are neighbours in memory
  std::vector<Node*> nodes_;
  std::vector<Cell> cells_;
  std::vector<size_t> room_;              // messages for which each stream has room
  Mutex quotas_mutex_;                    // of set_quota()
  std::vector<std::atomic<int>> quotas_;  // per register: how many slots circulate
  std::atomic<bool> stopped_{false};
  std::atomic<bool> activated_{false};
};

}  // namespace sluice::actors
