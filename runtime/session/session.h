#pragma once
// A Session runs one plan: loaded once, then any number of steps, pipelined, from any number of threads.
//
//   Session session = Session::load(engine, plan, bindings);
//   StepHandle step = session.submit(inputs);   // copies the inputs, returns at once, blocks only at capacity
//   step.outputs()[0].storage->data();          // waits; throws the step's error
//
// A step that fails does not stop the session: later steps run. When a source says that its data has ended, the steps
// before that finish; the handles of the others, and submit(), report kEndOfData until reset(). Destroying a session
// cancels its steps in flight.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_spec.h"
#include "base/trace.h"
#include "kernels/kernel.h"
#include "memory/storage.h"
#include "plan/plan.h"
#include "plan/shard.h"
#include "runtime/options.h"

namespace sluice::actors {
class TraceBell;
}  // namespace sluice::actors

namespace sluice {

class Debugger;
class Engine;
class SessionCore;
class StepState;

// Storage of each plan variable, by name: right space, at least the variable's bytes.
using VariableBindings = std::map<std::string, std::shared_ptr<Storage>>;

// Memory to read an input from; any strides. Borrowed host memory is copied before submit() returns.
//
// With `storage`, in which `data` lies, it is handed over: once submit() has returned the memory is the step's, which
// may write to it, and the session lets go of it when its last reader is done, or else the step is over. A port that
// exchanges memory (PortInfo) takes it as it is if it lies in the port's space, contiguous, at a multiple of 64 bytes,
// and, where the input's memory becomes a result's, at the start of the storage; otherwise it is copied. Whoever lets
// go last frees it, on a stream thread, too: what a storage runs then must not throw, block or call the session. If
// submit() throws, nothing was taken.
struct InputTensor {
  const void* data = nullptr;
  TensorSpec spec;
  std::shared_ptr<Storage> storage = nullptr;
};

// A result: contiguous memory of the port's space, owned by whoever holds the storage, also after the session's end.
struct OutputTensor {
  TensorType type;
  std::shared_ptr<Storage> storage;
};

using StepDone = std::function<void(const Status& status, const std::vector<OutputTensor>& outputs)>;
inline constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();

// Options that a submission gives its step besides the inputs.
struct StepCall {
  std::string_view tag = {};  // names the step in its errors and in the log
  // Host memory for the results, in the plan's order and of the ports' types, contiguous; none: the session's own. The
  // session lets go of it when the step is over and nobody asks for its results any more. Results of a port that
  // exchanges memory are copied there.
  std::span<const OutputTensor> outputs = {};
  // Called once, as SessionOptions::on_output and right after it; never where submit() throws or gives nothing.
  StepDone on_done = nullptr;
  // A step that is not over by then is given up, and told kTimeout; nobody waits longer for room. Throws kUnsupported
  // for one rank's part of a plan of several.
  std::chrono::steady_clock::time_point deadline = kNoDeadline;
  int priority = 0;  // of callers that wait for room, those of the highest go first; of these, who came first
};

struct PortInfo {
  std::string name;
  TensorType type;
  plan::Space space = {};   // of callers' memory; an input may be borrowed from host memory, too
  std::string copied = "";  // why its memory is copied; "": it is exchanged with callers'
};

// One submitted step. Cheap to copy; may outlive the session. Thread-safe.
class StepHandle {
 public:
  StepHandle() = default;
  bool valid() const { return state_ != nullptr; }
  uint64_t step() const;
  // Never blocks.
  bool done() const;
  // Blocks until the step is finished and returns how it went. Throws kTimeout naming the actors that are stuck.
  Status wait();
  Status wait(Timeout timeout);
  // wait(), throws the step's error, and gives the results in the plan's order.
  const std::vector<OutputTensor>& outputs();
  // Gives the step up: no kernel of it starts any more, what waits for it is told kCancelled at once, and the session
  // goes on as after a step that failed. False where it was too late: then the step ends as it would have. Throws
  // kUnsupported for one rank's part of a plan of several.
  bool cancel();
  // Memory that the caller gave for the results is no longer the session's, if the step is over.
  void let_go_of_outputs();

 private:
  friend class SessionCore;
  explicit StepHandle(std::shared_ptr<StepState> state) : state_(std::move(state)) {}
  std::shared_ptr<StepState> state_;
};

// Counters of a run, to be read at any time: the streams publish them as they go and take no lock for it. While steps
// run, two counters read together may be a few firings apart; after wait_all() all are exact (a step is finished within
// the firing of its sink, which is counted a moment later). Counters of events never fall.
struct ActorStats {
  std::string name;
  uint64_t firings = 0;
  uint64_t waits = 0;     // how often it had to stop for a message
  uint64_t busy_ns = 0;   // in its kernels (launching them, on devices)
  int stream = 0;         // in SessionStats::streams
  uint64_t left_out = 0;  // kernels that did not run, because they belong to a branch not taken
};
// A stream serves all sessions of its engine that use it, and counts for all of them, from its first use.
struct StreamStats {
  std::string name;
  uint64_t busy_ns = 0;  // its thread was neither parked nor waiting for a device or for cores
  uint64_t parks = 0;    // how often it was
};
struct RegisterStats {
  std::string name;
  uint64_t tokens = 0;  // written so far
  int quota = 0;        // slots that circulate
  int used = 0;         // slots that are not free now
  int ready = 0;        // tokens that some reader has yet to take
  int peak = 0;         // the most slots ever used at once
};
// A kernel that a vendor's library computes, in place of one of ours.
struct KernelLibrary {
  std::string name, library;
};
struct SessionStats {
  uint64_t submitted = 0, finished = 0, failed = 0;
  int in_flight = 0, max_in_flight = 0;
  int waiting = 0;                               // callers, for room for another step
  uint64_t bytes = 0;                            // that the session holds: SessionMemory's totals
  uint64_t mapped = 0;                           // of them, pages of files
  uint64_t shared = 0;                           // of them, what sessions of the same weights hold once
  uint64_t input_copies = 0, output_copies = 0;  // tensors copied at ports; not those that were handed over
  uint64_t spilled = 0, fetched = 0;             // bytes written to the disk, and read from there, in all steps
  // In the plan's order.
  std::vector<ActorStats> actors;
  std::vector<StreamStats> streams;
  std::vector<RegisterStats> registers;
  std::vector<KernelLibrary> libraries;
  // Tables for people.
  std::string str() const;
};

// Bytes a session holds, by what for.
struct SessionMemory {
  struct Space {
    std::string name;        // "host", "sim:0"
    uint64_t arenas = 0;     // register slots, activations, workspaces
    uint64_t shared = 0;     // of them, in SessionOptions::arenas
    uint64_t variables = 0;  // bound, shared with others
    uint64_t mapped = 0;     // of them, pages of files: this process has them only where it read them
    uint64_t packed = 0;     // copies of variables as kernels read them, shared with others
    uint64_t inputs = 0;     // of steps beyond those that the plan's slots hold; copies at ports that exchange memory
    uint64_t outputs = 0;    // results of the steps that may be in flight; slots of ports that exchange memory
    uint64_t total() const { return arenas + variables + packed + inputs + outputs; }
  };
  std::vector<Space> spaces;
};

class Session {
 public:
  Session() = default;
  // Verifies the plan, binds its variables, allocates its arenas, prepares its kernels, starts its actors.
  // Throws with what is wrong and leaves nothing behind. The engine must outlive the session.
  static Session load(Engine& engine, plan::Plan plan, const VariableBindings& variables = {},
                      SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;  // ends the session assigned to
  // stop(). Never hangs and never throws: a session that is stuck for longer than options.stop_timeout, or that one of
  // its own streams' threads destroys, is abandoned: its handles report kCancelled, and the engine keeps what its
  // actors use until they have ended. The variables they write may change until then.
  ~Session();

  bool valid() const { return core_ != nullptr; }
  const plan::Plan& plan() const;
  std::vector<PortInfo> inputs() const;
  std::vector<PortInfo> outputs() const;

  // Starts a step. At capacity: waits (throws kTimeout after options.submit_timeout).
  // Throws kValue/kType naming the input, what was expected and what came.
  StepHandle submit(std::span<const InputTensor> inputs, const StepCall& call = {});
  StepHandle submit(std::span<const InputTensor> inputs, Timeout timeout);
  // At capacity: nothing.
  std::optional<StepHandle> try_submit(std::span<const InputTensor> inputs, const StepCall& call = {});

  // Starts `n` steps of a plan without inputs at once, beyond the capacity and without handles. For measurements.
  void start(uint64_t n);
  // Blocks until every submitted step is finished: all actors have fired for it, which stats() shows, and on_output has
  // returned. Throws errors that reached no handle. Throws kTimeout naming the actors that are stuck.
  void wait_all();  // options.wait_timeout
  void wait_all(Timeout timeout);
  // Begins anew, after the end of data or at any time: waits for what was submitted, but for steps that need more of
  // them; then initial tokens are zeros again, steps and counters count from 0. Variables, and what host functions
  // keep, stay as they are: a source's function begins anew by itself. Throws kTimeout naming who is stuck, kRuntime
  // once stopped and on a stream's own thread, kUnsupported for plans with collectives.
  void reset();
  // Cancels the steps in flight (their handles report kCancelled), ends all actors and returns all slots. Idempotent;
  // submit() throws afterwards. Waits for the kernels then running: throws kTimeout naming the actors that are stuck in
  // one after options.stop_timeout; may then be called again. Throws kRuntime on a stream's own thread.
  void stop();
  void stop(Timeout timeout);

  // So many slots of a register, by name, circulate from now on, while steps run: at most as many as the plan has
  // memory for, and no fewer than those with which the plan is proven to run for ever. Results stay the same. Slots
  // that are out are taken when they come back. Throws kValue with the reason, kUnsupported for registers whose slots
  // others write or share, kTimeout when the producer's stream is busy for longer than options.wait_timeout, kRuntime
  // on a stream's own thread.
  void set_quota(const std::string& reg, int slots);

  SessionStats stats() const;
  SessionMemory memory() const;
  // Says who waits for what, one line per actor that is not idle: the watchdog's report.
  std::string wait_report() const;

  // Records firings, kernels and waits into rings of a fixed size, made when it is first switched on; each stream keeps
  // its latest 32,768 events. See also TraceFile.
  // Switched off, it waits for those that are under way, or, without `wait`, lets them add their events.
  void set_trace(bool on, bool wait = true);
  // Every actor has fired for the first `steps` steps, so that their events are there; so it is once stopped.
  bool has_fired(uint64_t steps) const;
  // Events since tracing was switched on or they were last taken, sorted by time.
  Trace take_trace();
  // The same as they are kept, which costs less: by stream, and of each in the order of their ends.
  Trace take_trace_by_stream();
  // Rings whenever a stream has filled half of its ring. It lives as long as the session.
  actors::TraceBell& trace_bell();
  TraceNames trace_names() const;

 private:
  friend class Debugger;
  explicit Session(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
  std::shared_ptr<SessionCore> core_;
};

}  // namespace sluice
