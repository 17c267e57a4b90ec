#pragma once
// Runs a session one firing at a time: stops where it is told to, looks into registers, changes values, goes on.
//
//   Engine engine({.manual_stepping = true});
//   Session session = load_session(engine, "out/net");
//   Debugger debugger(engine, session);
//   debugger.submit(inputs, 2);                                   // steps that begin as soon as there is room
//   debugger.add({.not_finite = true});
//   const Stop stop = debugger.run();                             // nobody has read the NaN yet
//   debugger.change(stop.where->reg, stop.where->slot, 0, type, data);
//   debugger.run();
//
// It has no firing rule of its own: messages wait at their streams as in any run that is stepped by hand, it lets all
// of them be counted, and gives one actor after the other its turn. Between two turns the whole plan stands still.
//
// Thread safety: none; all calls come from one thread.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan/firing/firing.h"
#include "plan/firing/slot_states.h"
#include "runtime/debug/values.h"
#include "runtime/session/session.h"

namespace sluice {

namespace actors {
class Runner;
}

// Says where to stop; what is left out holds for all.
struct Breakpoint {
  int number = 0;  // from 1, given by add()
  int actor = -1;  // before it fires; without one, before the first firing of a step
  int64_t step = -1;
  int64_t nth = -1;         // of the actor's firings in a step: a micro-batch
  bool not_finite = false;  // behind a firing that has written a NaN or an infinity, before anybody reads it
  int reg = -1;             // not_finite: only to this register
};

struct Firing {
  int actor = 0;
  uint64_t step = 0, nth = 0, of = 1;  // the nth of so many in its step
  struct Token {
    int reg = 0, slot = 0;
  };
  std::vector<Token> wrote;  // of a firing that is over; only registers with bytes
};

struct FinishedStep {
  uint64_t step = 0;
  Status status;
};

struct Stop {
  enum class Reason : uint8_t { kStepped, kBreakpoint, kNotFinite, kEnd };  // kEnd: nothing is left to do
  Reason reason = Reason::kEnd;
  uint64_t firings = 0;          // since it went on
  std::optional<Firing> firing;  // kBreakpoint: the next one; kStepped, kNotFinite: the last one
  std::optional<Breakpoint> at;  // kBreakpoint, kNotFinite
  struct Where {
    int reg = 0, slot = 0, part = 0;
    NotFinite found;
  };
  std::optional<Where> where;          // kNotFinite
  std::vector<FinishedStep> finished;  // since it went on
};

struct ActorState {
  Firing next;
  uint64_t firings = 0;
  bool ready = false;                         // it may fire next
  std::vector<plan::FiringRule::Wait> waits;  // else: for these
  uint64_t starts = 0;                        // start credits, of feeds and sources
};

class Debugger {
 public:
  // REQUIRES: `engine` steps manually and has no other session at work; both outlive this. With a seed, that chooses
  // who fires next; without, the oldest step goes first, in the order of the plan's certificate. Throws kUnsupported
  // for a plan with collectives.
  Debugger(Engine& engine, Session& session, std::optional<uint64_t> seed = std::nullopt);

  const plan::Plan& plan() const { return session_.plan(); }
  // `steps` more steps of these inputs. Throws kValue for inputs that are not the plan's.
  void submit(std::vector<InputTensor> inputs, uint64_t steps);
  uint64_t steps_left() const;  // not finished

  // Throws kValue for what the plan does not have.
  Breakpoint add(Breakpoint breakpoint);
  void remove(int number);
  const std::vector<Breakpoint>& breakpoints() const { return breakpoints_; }

  // The actor that fires next; none where nothing can.
  std::optional<Firing> next();
  Stop step();  // one firing
  Stop run();   // until a breakpoint, or the end

  // The tensors in each slot of a register, and one of them, which must be there.
  const std::vector<SlotPart>& parts(int reg) const { return parts_[reg]; }
  const SlotPart& part_of(int reg, int part) const;
  // Indices by name. Throw kValue with the names that there are.
  int actor_named(const std::string& name) const;
  int register_named(const std::string& name) const;
  std::vector<ActorState> actors();
  std::vector<plan::SlotState> slots(int reg);
  // Elements, contiguous. Throws kValue for a slot without a value.
  std::vector<std::byte> look(int reg, int slot, int part);
  void change(int reg, int slot, int part, const TensorType& type, const std::byte* data);
  // The slot whose value is the newest. Throws kValue where the register has none.
  int newest_slot(int reg);
  // The results of the last step that was finished without an error.
  const std::vector<OutputTensor>& results() const { return results_; }

 private:
  struct Pending {
    std::vector<InputTensor> inputs;
    uint64_t steps = 0;
  };
  std::optional<int> choose();
  void feed();
  Firing next_of(actors::Runner& runner, int actor) const;
  void fire(Stop& stop, int actor);
  void finish(Stop& stop);
  const Breakpoint* stops_before(const Firing& next) const;
  bool stops_behind(Stop& stop, const Firing& last);
  void settle(actors::Runner& runner);
  std::byte* address(int reg, int slot);
  const plan::Space& space_of(int reg) const;
  std::vector<uint64_t> fired(actors::Runner& runner) const;

  Engine& engine_;
  Session& session_;
  std::vector<std::vector<SlotPart>> parts_;  // per register
  std::vector<size_t> place_;                 // per actor: in the certificate
  std::optional<std::mt19937_64> random_;
  std::optional<int> chosen_;  // who fires next, until somebody has fired or a step has been submitted
  std::optional<std::pair<int, uint64_t>> stopped_at_;  // the actor and its firing before which run() stopped last
  std::vector<Breakpoint> breakpoints_;
  std::map<int, uint64_t>
      told_;  // of breakpoints without an actor, by number: the step before which run() stopped last
  int last_number_ = 0;
  std::deque<Pending> pending_;
  std::deque<StepHandle> in_flight_;
  std::vector<OutputTensor> results_;
};

}  // namespace sluice
