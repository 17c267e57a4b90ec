#pragma once
// The shared state of a session: kept alive by the Session, by calls under way, and by storages' users while they wait.
//
// Invariants
//  1. Steps are numbered in the order submitters get past the capacity check; their start credits go out in that order.
//  2. submitted_ - finished_ <= max_in_flight_, except for start(n). Those without slots are in the backlog.
//  3. The input slots of step s are written only while they are free and before its start credit: by its submitter, or
//     from the backlog by whoever learns of free slots. What was handed over is in port_memory_ until then.
//  4. Once data_ended_, no start credit goes out until reset() has made another runner.
//  5. mutex_ is never held while something else is waited for, except on its condition variables.
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/runner.h"
#include "actors/system.h"
#include "base/files/mapped_file.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "runtime/session/backlog.h"
#include "runtime/session/engine.h"
#include "runtime/session/exchange.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/port_memory.h"
#include "runtime/session/ports.h"
#include "runtime/session/session.h"
#include "runtime/session/step_state.h"
#include "runtime/session/turns.h"
#include "streams/collective/world.h"

namespace sluice {

// Counts who waits, for as long as it lives, which an interrupt may end.
template <class Count>
class CountedWaiter {
 public:
  explicit CountedWaiter(Count& count) : count_(count) { ++count_; }
  ~CountedWaiter() { --count_; }
  CountedWaiter(const CountedWaiter&) = delete;
  CountedWaiter& operator=(const CountedWaiter&) = delete;

 private:
  Count& count_;
};

class SessionCore final : public actors::RunListener,
                          public actors::Supervised,
                          public StorageUser,
                          public Turns::Member,
                          public std::enable_shared_from_this<SessionCore> {
 public:
  // What loading has put together.
  struct Loaded {
    plan::Plan plan;
    SessionOptions options;
    std::vector<std::shared_ptr<actors::StreamExecutor>> streams;  // per plan stream
    std::vector<std::shared_ptr<Storage>> variables;               // per plan variable
    std::vector<bool> variable_written, variable_mapped;
    std::vector<std::shared_ptr<PackedWeight>> packed;       // per packed copy of the plan
    std::vector<std::shared_ptr<const MappedFile>> files;    // whose pages variables are
    std::vector<std::shared_ptr<Storage>> arenas;            // the block that each lies in
    std::vector<bool> arena_shared;                          // with other sessions
    uint64_t least_in_flight = 1;                            // steps, for other ranks' sake
    std::shared_ptr<collective::World> world;                // of a plan of several ranks, of which this is one
    std::vector<std::shared_ptr<collective::World>> worlds;  // of one whose ranks are all in this process
    std::map<int, std::unique_ptr<collective::Communicator>> communicators;  // by group
    std::vector<std::shared_ptr<const int>> lanes;                           // streams of its own, by number
    std::vector<std::shared_ptr<const PreparedKernel>> kernels;
    Ports ports;
    Exchange exchange;  // of ports
    actors::Bindings bindings;
  };
  SessionCore(Engine& engine, std::unique_ptr<Loaded> loaded);
  ~SessionCore() override;
  // Attaches to variables, registers with the control plane, lets the actors run.
  void open();

  // Ending, all idempotent and thread-safe. No kernel is started any more, no step submitted.
  void cancel();
  // Ends everything and lets go of the engine. Throws kTimeout naming who is stuck, kRuntime on a thread of its own.
  void stop(Timeout timeout);
  // The same, but what does not end in time is abandoned to the engine.
  void end(Timeout timeout) noexcept;
  // Of an abandoned session: it may be let go.
  bool actors_ended() const;

  const plan::Plan& plan() const { return loaded_->plan; }
  std::vector<PortInfo> inputs() const;
  std::vector<PortInfo> outputs() const;
  std::optional<StepHandle> submit(std::span<const InputTensor> inputs, Timeout timeout, bool try_only,
                                   const StepCall& call);
  bool cancel_step(StepState& state);
  // Of a step whose deadline has passed, if `use` of the state is still that step.
  void give_up_late(StepState& state, uint64_t use) noexcept;
  Timeout submit_timeout() const { return loaded_->options.submit_timeout; }
  Timeout wait_timeout() const { return loaded_->options.wait_timeout; }
  Timeout stop_timeout() const { return loaded_->options.stop_timeout; }
  void start(uint64_t n);
  void wait_all(Timeout timeout);
  void reset();
  Status wait_step(StepState& state, Timeout timeout);
  SessionStats stats() const;
  SessionMemory memory() const;
  std::string wait_report() const;
  void set_trace(bool on, bool wait);
  bool has_fired(uint64_t steps) const;
  Trace take_trace();
  TraceNames trace_names() const;

  // StorageUser
  void wait_idle(bool writes_only) override;

  // Turns::Member
  const char* name() const override { return plan().name.c_str(); }
  bool at_rest() const override;
  void come_to_rest(Timeout timeout) override;

  // actors::RunListener
  void on_sink(int actor, uint64_t step, const Status& status, void* const* outputs) override;
  bool sinks_are_brief() const override { return brief_sinks_ && callbacks_.load() == 0; }
  void on_input_slots(int reg, uint64_t writable) override;
  void on_sink_end(int actor) override;
  void on_data_end() override;
  void on_failure(uint64_t step, const Status& status) override;
  void on_missed_collective(int kernel, const Status& status) override;
  void on_variables_done(bool writes) override;

  // actors::Supervised
  void on_actor_down(int actor, const std::string& reason) override;
  uint64_t firings() const override;
  bool busy() const override;
  void on_stall(std::chrono::milliseconds idle) override;

 private:
  struct Sink {
    int actor = 0;
    std::vector<int> outputs;  // of the plan
    uint64_t per_step = 1;     // firings; 1 also where it answers several steps at once
    uint64_t next_step = 0;    // the first not delivered
    uint64_t fired = 0;
    bool ended = false;  // delivers no more
  };
  struct FedRegister {
    int reg = 0;
    uint64_t starts = 1;  // firings of its feed per step
    uint64_t quota = 1;
    uint64_t writable = 0;  // firings whose slots may be written
  };

  // False after `timeout`, or on a thread of its own.
  bool close(Timeout timeout);
  bool on_own_thread() const;
  // On a thread that a step may need. REQUIRES: mutex_ held.
  bool waits_for_itself() const;
  bool end_actors(Timeout timeout);
  Status read_extent(StepState& state, int output, const void* slot) const;
  bool drain(actors::Runner& runner, Timeout timeout);
  std::shared_ptr<actors::Runner> make_runner();
  void renew();
  void let_go();
  void abandon();
  void finish_rest(std::unique_lock<std::mutex>& lock);
  // In a fork of the process that has loaded it, it has no threads.
  bool forked() const { return forks_ != fork_count(); }
  void check_process() const;
  void detach_variables();
  struct EndUse {
    const SessionCore* core = nullptr;
    void operator()(actors::Runner* runner) const;
  };
  // Keeps the runner and its streams; null once closed.
  using RunnerInUse = std::unique_ptr<actors::Runner, EndUse>;
  RunnerInUse runner() const;
  void read_counters(SessionStats& stats) const;
  void check_inputs(std::span<const InputTensor> inputs) const;
  void check_handed_over(size_t index, const InputTensor& input) const;
  void check_outputs(std::span<const OutputTensor> outputs) const;
  void copy_inputs(uint64_t step, std::span<const InputTensor> inputs);
  template <class Copy>
  void copying(uint64_t step, Copy&& copy);
  int least_in_flight() const;
  void publish_backlog();
  // REQUIRES, of these: mutex_ held.
  bool has_slots(uint64_t step) const;
  bool has_capacity() const;
  bool may_enter(int priority) const;
  bool wait_for_room(std::unique_lock<std::mutex>& lock, int priority, Timeout timeout);
  void offer_room();
  void wake_room_waiters();
  void check_open() const;
  void publish(uint64_t step);
  bool none_is_published() const;
  void order_variables();
  void leave_team() const;
  void count_writes();
  std::shared_ptr<StepState> new_state(const StepCall& call);
  void let_go_of_results();
  void check_may_cancel(const char* what) const;
  bool give_up(StepState& state, uint64_t use, const Status& status);
  // Lets go of the lock, to wake callers.
  void finish_delivered(std::unique_lock<std::mutex>& lock);
  // Returns the state whose callers are still to be woken; null when they have been.
  [[nodiscard]] StepState* finish_step(std::unique_lock<std::mutex>& lock, uint64_t step);
  void conclude(const std::shared_ptr<StepState>& state, const Status& status);
  Status outcome(Status status, uint64_t step);
  std::string tag_of(uint64_t step) const;
  Status with_updates(const Status& status, uint64_t step) const;
  Status end_of_data(uint64_t step) const;
  Turns::Inside take_turn(Timeout timeout, bool try_only);
  void wait_finished(Timeout timeout);
  void wait_fired(uint64_t steps, Timeout timeout);
  void synchronize_streams() const;
  void wait_touches(bool writes_only, Timeout timeout);
  uint64_t touches_due(uint64_t steps, bool writes_only) const;
  uint64_t period() const { return runner_->counts().period(); }
  // Waits on `changed` until `done`; when stepping manually, steps. False after `timeout` or when nothing can happen.
  template <class Done>
  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Timeout timeout, Done&& done);
  [[noreturn]] void fail_timeout(const std::string& what, Timeout timeout) const;

  const uint64_t forks_ = fork_count();
  Engine& engine_;  // not used once closed_: it may be gone
  const std::shared_ptr<Allocator> results_memory_;
  const bool manual_;
  std::unique_ptr<Loaded> loaded_;
  const std::shared_ptr<Turns> turns_;  // null where no arena is shared
  Ports ports_;
  std::unique_ptr<PortMemory> port_memory_;
  std::unique_ptr<Backlog> backlog_;        // null when the plan has slots for all that may be in flight
  std::shared_ptr<actors::Runner> runner_;  // null once closed
  std::shared_ptr<actors::System::Run> control_;
  std::atomic<bool> never_active_{false};  // open() has failed before an actor could fire
  std::vector<Sink> sinks_;
  std::vector<FedRegister> fed_;
  std::vector<int> touching_, writing_;  // actors whose firings read or write variables
  int max_in_flight_ = 1;
  bool brief_sinks_ = false;
  bool computes_elsewhere_ = false;         // on several cores, and not in the thread that submits
  bool computes_long_ = false;              // on several cores: worth that its caller makes another team
  std::atomic<uint64_t> callbacks_{0};      // steps under way with an on_done, which runs on a thread of the engine
  std::atomic<bool> lends_outputs_{false};  // some results are memory of others: exchanged, or given by callers

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // variables idle, finished_ at wake_at_, closing
  std::condition_variable published_changed_;
  uint64_t wake_at_ = UINT64_MAX;                           // the least finished_ someone waits for on changed_
  struct RoomWaiter : boost::intrusive::list_base_hook<> {  // on its thread's stack: waiting allocates nothing
    int priority = 0;
    std::condition_variable changed;  // it is first and there is room, or closing
  };
  boost::intrusive::list<RoomWaiter> room_waiters_;  // whose turn comes next is first
  uint64_t submitted_ = 0;                           // numbers given out
  std::atomic<uint64_t> published_{0};               // start credits given
  std::vector<bool> in_backlog_;                     // per step % size: its inputs are all there
  bool publishing_ = false;                          // a thread is at publish_backlog()
  uint64_t finished_ = 0, failed_ = 0;
  mutable int readers_ = 0;                          // of runner_'s counters, without the lock; let_go() waits for them
  std::shared_ptr<StepState> telling_;               // of the step whose on_output runs
  bool finishing_ = false;                           // a thread is at finish_delivered()
  bool closing_ = false;                             // cancelled
  bool ending_ = false;                              // a thread is at it
  bool closed_ = false;                              // nothing more will happen that callers could see
  bool abandoned_ = false;                           // its actors have not ended, and nobody waits for that
  bool data_ended_ = false;                          // a source's; what was submitted comes to its end
  bool resetting_ = false;                           // nothing is submitted
  uint64_t resets_ = 0;                              // whoever waits for something of before has it
  Status session_error_;                             // ends the session
  Status late_error_;                                // of a step whose handle had been finished
  std::map<uint64_t, Status> failures_;              // of steps in flight
  std::vector<std::shared_ptr<StepState>> pending_;  // per step % size
  std::vector<std::shared_ptr<StepState>> pool_;
  struct Variables {
    std::vector<std::shared_ptr<Storage>> storages;
    std::vector<std::shared_ptr<PackedWeight>> packed;
  };
  std::shared_ptr<const Variables> variables_;  // of `loaded_`; null once closed
  ShortWait short_wait_;                        // of those who wait for steps
  std::atomic<uint64_t> input_copies_{0}, output_copies_{0};
  std::atomic<uint64_t> touches_{0}, write_touches_{0};
  std::atomic<int> idle_waiters_{0};
  SessionStats last_stats_;  // once closed
};

template <class Done>
bool SessionCore::wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Timeout timeout,
                           Done&& done) {
  if (done()) return true;
  SLUICE_CHECK_KIND(kRuntime, !waits_for_itself(),
                    "session '{}': waiting on a stream's own thread would never end; wait from another thread",
                    plan().name);
  if (manual_) {
    while (!done()) {
      lock.unlock();
      const bool stepped = engine_.step();
      lock.lock();
      if (!stepped) return done();
    }
    return true;
  }
  return interruptible_wait(lock, changed, timeout, done);
}

}  // namespace sluice
