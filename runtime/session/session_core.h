#pragma once
// A session as its callers share it: its Session owns and ends it, while handles of steps, storages of variables and
// sessions that take turns with it hold on to it and may outlive that Session, which therefore is an object of its own
// that only owns. It lets steps in and waits for them, and ends the session.
//
// Thread safety: every method.
//
// The state of a session lies in its parts (session_state.h), which say their invariants; here is only what takes
// several of them.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/trace_bell.h"
#include "runtime/live/live.h"
#include "runtime/session/run_events.h"
#include "runtime/session/session_state.h"
#include "runtime/session/step_waits.h"

namespace sluice {

class SessionCore final : public StorageUser,
                          public Turns::Member,
                          public LiveSource,
                          public std::enable_shared_from_this<SessionCore> {
 public:
  SessionCore(Engine& engine, std::unique_ptr<LoadedPlan> loaded)
      : events_(engine, std::move(loaded)), lends_outputs_(state_.shape.lends_outputs) {}
  ~SessionCore() override;
  // Attaches to variables, registers with the control plane, lets the actors run.
  void open();

  // Ending, all idempotent and thread-safe. No kernel is started any more, no step submitted.
  void cancel();
  // Ends everything and lets go of the engine. Throws kTimeout naming who is stuck, kRuntime on a thread of its own.
  void stop(Timeout timeout);
  // The same, but what does not end in time is abandoned to the engine.
  void end(Timeout timeout) noexcept;
  // An abandoned session whose actors have ended may be let go.
  bool actors_ended() const;

  const plan::Plan& plan() const { return state_.plan(); }
  std::vector<PortInfo> inputs() const;
  std::vector<PortInfo> outputs() const { return state_.ports.ports().outputs; }
  Timeout submit_timeout() const { return state_.options().submit_timeout; }
  Timeout wait_timeout() const { return state_.options().wait_timeout; }
  Timeout stop_timeout() const { return state_.options().stop_timeout; }

  std::optional<StepHandle> submit(std::span<const InputTensor> inputs, Timeout timeout, bool try_only,
                                   const StepCall& call);
  void start(uint64_t n);
  void reset();
  bool cancel_step(StepState& state);
  // Gives up a step whose deadline has passed, if `use` of the state is still that step.
  void give_up_late(StepState& state, uint64_t use) noexcept { sluice::give_up_late(state_, state, use); }
  void wait_all(Timeout timeout);
  Status wait_step(StepState& state, Timeout timeout) { return sluice::wait_step(state_, state, timeout); }

  void set_quota(const std::string& reg, int slots);
  SessionStats stats();
  SessionMemory memory() const;
  std::string wait_report() { return state_.wait_report(); }
  void set_trace(bool on, bool wait);
  bool has_fired(uint64_t steps);
  Trace take_trace();
  Trace take_trace_by_stream();
  actors::TraceBell& trace_bell() { return trace_bell_; }
  TraceNames trace_names() const;

  // Debugging: what it runs, and whether the next submit() has nothing to wait for.
  const LoadedPlan& loaded() const { return *state_.loaded; }
  RunnerUse use_runner() { return state_.use_runner(); }
  bool has_room() const;

  // LiveSource
  std::optional<plan::LiveSession> live_state() override;
  const plan::Plan& live_plan() const override { return plan(); }

  // StorageUser
  void wait_idle(bool writes_only) override { wait_accesses(state_, writes_only, wait_timeout()); }

  // Turns::Member
  const char* name() const override { return plan().name.c_str(); }
  bool at_rest() const override;
  void come_to_rest(Timeout timeout) override;

 private:
  struct Entered {
    std::shared_ptr<StepState> state;
    uint64_t step = 0;
    actors::Runner* runner = nullptr;
    bool has_slots = false;
  };
  void check_may_cancel(const char* what) const;
  Turns::Inside take_turn(Timeout timeout, bool try_only);
  // Accesses of others to its variables that were submitted before come first.
  void wait_for_others();
  void leave_team() const;
  void let_go_of_results();
  std::optional<Entered> enter(std::span<const InputTensor> inputs, const StepCall& call, Timeout left, Timeout timeout,
                               bool try_only);
  bool wait_for_room(MutexLock& lock, int priority, Timeout timeout) SLUICE_REQUIRES(state_.mutex);
  std::shared_ptr<StepState> new_state(const StepCall& call, std::span<const InputTensor> inputs)
      SLUICE_REQUIRES(state_.mutex);

  // Lets the runner's actors begin. `first`: the engine does not know the session yet.
  void begin(actors::Runner& runner, bool traced, bool first);
  // False after `timeout`, or on a thread of its own.
  bool close(Timeout timeout);
  bool on_own_thread() const;
  bool end_actors(actors::Runner& runner, Timeout timeout);
  void renew();
  void let_go();
  void abandon();
  void detach();
  void finish_last(SessionStats stats) SLUICE_REQUIRES(state_.mutex);

  actors::TraceBell trace_bell_;
  RunEvents events_;
  SessionState& state_ = events_.state();
  std::shared_ptr<actors::System::Run> control_;
  std::atomic<bool> lends_outputs_;  // some results are memory of others: exchanged, or given by callers
  std::shared_ptr<const BoundVariables> variables_ SLUICE_GUARDED_BY(state_.mutex);  // null once let go
  Mutex quotas_mutex_;                                        // held while they change, or the runner does
  std::vector<int> quotas_ SLUICE_GUARDED_BY(quotas_mutex_);  // per register: slots that circulate; empty: the plan's
  SessionStats last_stats_ SLUICE_GUARDED_BY(state_.mutex);   // once closed
};

}  // namespace sluice
