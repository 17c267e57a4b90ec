#pragma once
// A session runs one plan. Any number of threads may call it; steps are pipelined.
//
//   sluice::api::Engine engine;
//   auto session = sluice::api::Session::load(engine, "out/digits");
//   std::vector<Tensor> logits = session.run({images});
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine.h"
#include "error.h"
#include "export.h"
#include "plan.h"
#include "standard.h"
#include "tensor.h"
#include "trace.h"

namespace sluice {
class FamilyStep;
class SessionFamily;
class SharedArenas;
}  // namespace sluice

namespace sluice::api {

// Memory for what the steps of several sessions of one engine compute, as large as the largest of them needs. One of
// the sessions at a time has steps in flight: submit() waits, as long as its submit_timeout says, until the others'
// steps are done, and try_submit() gives nothing where it would have to. Variables, and all else that a session keeps
// between steps, are its own. Cheap to copy; lives as long as it or a session that has it. An empty one, as made by
// default, shares nothing.
class SLUICE_API SharedArenas {
 public:
  SharedArenas() = default;
  explicit SharedArenas(Engine& engine);
  // Makes room for a plan. Best called for all plans before the first is loaded: the memory of a session that is there
  // cannot grow, so a larger one that comes later gets new memory. Throws kMemory; kValue where it is empty.
  void reserve(const Plan& plan);
  uint64_t bytes() const;  // of the host, held for sessions to come; 0 of an empty one

 private:
  friend class Session;
  std::shared_ptr<sluice::SharedArenas> impl_;
};

// A folder as a plan's names have it, and the one that is there instead on this machine.
struct DataRoot {
  std::string folder, found_at;
};

struct SessionOptions {
  // Steps submitted and not finished. Beyond what the plan has slots for, which is what 0 stands for, each costs the
  // memory of its inputs.
  int max_in_flight = 0;
  std::chrono::milliseconds submit_timeout{0};  // of submit() when that many are in flight; 0: wait for ever
  std::chrono::milliseconds wait_timeout{0};    // of get() and wait_all(); 0: for ever
  // The limit of stop(), for kernels that run, and of the destructor, which then leaves them behind; 0: for ever.
  std::chrono::milliseconds stop_timeout{5000};
  bool check_numerics = false;  // fail a step whose kernels write NaN or infinity
  // Inputs that are handed over, and results, are not copied wherever the plan allows it (Port::copied says why not).
  bool zero_copy = false;
  // The same of inputs and outputs that the plan has in the memory of a device (CompileOptions::device_ports): what is
  // handed over may lie there, and results stay there (Port::device). Otherwise they, too, are copied from and to the
  // host's.
  bool device_ports = false;
  // Kernels of the CPU take denormal numbers for zero, operands and results, as those of a plan do that was compiled so
  // (graph.config.enable_flush_denormals).
  bool flush_denormals = false;
  // Actors of kernels of Sluice's that are predicted to take no longer run in the thread that submits, or that brings
  // their inputs: no thread is woken for them. submit() may take so long, and get() has no timeout meanwhile. More is
  // best where others use the cores and each result of a small net is waited for; less lets steps overlap.
  std::chrono::microseconds inline_up_to{2};
  // Called after each step, in order, on a thread of the engine, before get() or wait_all() return for it; error is ""
  // when the step went well. Must not block.
  std::function<void(uint64_t step, const std::vector<Tensor>& outputs, const std::string& error)> on_output = nullptr;
  // It may also be called within submit(), by the thread that submits, as inline_up_to says of actors. For bundles of a
  // plan alone: that of a plan family is called on threads of the engine.
  bool on_output_inline = false;
  SharedArenas arenas = {};  // of the session's engine
  // Weights that take the place of the bundle's of the same names; its file of weights may then be missing. Their
  // memory is used as it is if it lies at a multiple of 64 bytes and no step writes to it, and is kept; nobody may
  // change it.
  std::vector<NamedTensor> weights = {};
  // Says where the files are on this machine that a bundle's plan opens, as a saved input pipeline does. Names that
  // begin with a folder are looked for in the other one, {"train", "/srv/train"}; "" stands for the folder of relative
  // names. Throws kValue where the plan opens no files.
  std::vector<DataRoot> data_roots = {};
};

// The options of one step.
struct StepOptions {
  std::string tag = {};  // names the step in its errors, in the log and in traces
  // Memory for the results, of the types of outputs(): results are written there, nowhere else, and get() gives these
  // tensors. Nobody else may use it until the step is over. Throws kValue where types differ, kUnsupported for an
  // output whose length differs from step to step.
  std::vector<Tensor> outputs = {};
  // Called once, when the step is over: after on_output of the session, before get() returns (but for a step that was
  // given up), on a thread of the engine; of steps still in flight, on the thread that ends the session. error is ""
  // when the step went well, else there are no outputs. Must not throw, block or submit. Everything that the function
  // holds is let go of behind the call. Not called where submit() throws or gives nothing.
  std::function<void(const std::vector<Tensor>& outputs, const std::string& error)> on_done = nullptr;
  // From the call on: a step that is not over by then is given up as by cancel(), with kTimeout naming who is stuck.
  // Waiting for room counts. 0: none. Throws kUnsupported for one rank's part of a plan.
  std::chrono::milliseconds deadline{0};
  // When callers wait for room, those of the highest priority get it first, and among equals those who came first.
  // Steps that have room run in the order in which they got it.
  int priority = 0;
};

// A submitted step. An empty one, as made by default or moved from, throws kValue when asked for anything.
class SLUICE_API Result {
 public:
  uint64_t step() const;
  bool ready() const;  // never blocks
  // Waits for the outputs, in the plan's order. Throws the step's error, or kTimeout naming who is stuck.
  std::vector<Tensor> get();
  std::vector<Tensor> get(std::chrono::milliseconds timeout);
  // Gives the step up, from any thread: who waits for it gets kCancelled at once, and none of its kernels starts any
  // more; one that runs comes to its end. The session goes on as after a step that failed: variables may be updated in
  // part, and memory given for results may be written to until wait_all(). False where the step was over, or all but.
  // Throws kUnsupported for one rank's part of a plan.
  bool cancel();

 private:
  friend class Session;
  std::shared_ptr<sluice::FamilyStep> impl_;
};

struct ActorCount {
  std::string name;
  uint64_t firings = 0;
};

// Counters, to be read at any time, from any thread, while steps run; what counts events never falls. Exact at rest.
struct Counters {
  struct Actor {
    std::string name;
    uint64_t firings = 0, waits = 0;  // waits: how often it had to stop for a message
    uint64_t busy_ns = 0;             // in its kernels
    int stream = 0;                   // in `streams`
  };
  // The counts are those of all sessions of the engine that use the stream, from its first use.
  struct Stream {
    std::string name;
    uint64_t busy_ns = 0;  // neither parked nor waiting for a device or for cores
    uint64_t parks = 0;
  };
  struct Register {
    std::string name;
    uint64_t tokens = 0;                           // written so far
    int quota = 0, used = 0, ready = 0, peak = 0;  // slots; not free now; with a token to read; most used at once
  };
  uint64_t submitted = 0, finished = 0, failed = 0;  // steps
  int in_flight = 0, max_in_flight = 0;
  int waiting = 0;                               // callers, for room for another step
  uint64_t bytes = 0;                            // that the session holds
  uint64_t mapped = 0;                           // of them, pages of a bundle's file, which processes share
  uint64_t shared = 0;                           // of them, what sessions of an engine with the same weights hold once
  uint64_t input_copies = 0, output_copies = 0;  // tensors copied
  std::vector<Actor> actors;
  std::vector<Stream> streams;
  std::vector<Register> registers;
  std::string text;  // the same as tables for people
};

// One that was moved from throws kValue when asked for anything but its ports, of which it has none.
class SLUICE_API Session {
 public:
  // Loads a bundle, of a plan or of a plan family. The session of a family takes inputs of all sizes that its dims
  // allow (see Port::dims): the smallest plan that fits runs a call. The engine must outlive the session. Throws kIo,
  // kValue, kUnsupported (a plan with Python in it). A bundle is a directory, or a tar archive of one, which is mapped.
  static Session load(Engine& engine, const std::string& bundle, SessionOptions options = {});
  // The same of an archive in memory. Weights at multiples of 64 bytes are used where they lie: the archive is kept as
  // long as they are, on any session, and nobody may change it.
  static Session load(Engine& engine, std::shared_ptr<const void> archive, size_t bytes, SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();  // cancels what is in flight

  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }

  // One step from inputs to outputs, in the plan's order.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // The same into memory of the caller's, as StepOptions::outputs. For a plan alone this allocates nothing once warm,
  // if the tensors' memory was made by Sluice. If it throws kTimeout, the step may still write there.
  void run_into(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);
  // Starts a step; its inputs are copied. Waits while max_in_flight steps are under way.
  Result submit(const std::vector<Tensor>& inputs);
  Result submit(const std::vector<Tensor>& inputs, const StepOptions& options);
  // Starts a step whose inputs' memory becomes the step's, which may write to it; with zero_copy it is not copied if it
  // lies at a multiple of 64 bytes. With device_ports it may be a device's, whose work on it must be done. Nobody else
  // may write there until the step is over; its content is lost. The engine lets go of it once the step has read it, on
  // any thread; whoever lets go last frees it, and a deleter that runs then must not throw, block or call the session.
  // Results may lie in that memory. If this throws, nothing was taken.
  Result hand_over(std::vector<Tensor> inputs);
  Result hand_over(std::vector<Tensor> inputs, const StepOptions& options);
  // The same as submit(), but nothing when it would have to wait.
  std::optional<Result> try_submit(const std::vector<Tensor>& inputs);
  std::optional<Result> try_submit(const std::vector<Tensor>& inputs, const StepOptions& options);
  // Waits until every submitted step is finished, and counted. Throws kTimeout naming who is stuck.
  void wait_all();
  // Begins anew, after kEndOfData or at any time: waits for what was submitted; then registers and counters are as they
  // were at the start. Variables stay as they are.
  void reset();
  // Cancels what is in flight and ends the session's actors.
  void stop();
  // Records firings, kernels and waits of the steps that run while it is on: each stream keeps its latest 32,768. Waits
  // for nothing: what is under way when it is switched off still adds its events.
  void set_trace(bool on);
  // Returns the events that have been recorded since it was switched on, or last taken.
  Trace take_trace();
  // How often each actor has fired.
  std::vector<ActorCount> firings() const;
  // All counters: steps, actors, streams, registers.
  Counters counters() const;

 private:
  explicit Session(std::unique_ptr<sluice::SessionFamily> impl);
  struct Loader;
  friend struct Access;
  std::unique_ptr<sluice::SessionFamily> impl_;
  std::vector<Port> inputs_, outputs_;
};

}  // namespace sluice::api
