#pragma once
// Compile-and-run: a captured graph becomes a plan bound to the tensors it was traced with.
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/compiler.h"
#include "compiler/sbp_infer.h"
#include "runtime/options.h"
#include "tensor/trace.h"

namespace sluice {

class BundleSource;
class Engine;
class Session;
class PlanCache;
class Storage;
struct Bundle;
struct BundleTensor;

// The tensors that bundles of one family have written already, and the tensors that have been made of their weights.
using BundledTensors = std::map<const ValueImpl*, BundleTensor>;
using LoadedTensors = std::map<const Storage*, Tensor>;

struct GraphSessionOptions {
  CompileOptions compile;
  // `functions` by the `name` of host_function nodes; `shards` are the graph's own. Donated inputs imply `zero_copy`.
  // REQUIRES: with `device_ports` it is not called, for results are tensors of the host.
  SessionOptions session;
  std::shared_ptr<PlanCache> plans = nullptr;  // compiled before, and to be kept
  // Lets go of the sessions that nobody can reach any more. Asked before a variable is refused that another one uses.
  std::function<void()> collect_dropped = nullptr;
  NamedAttrs recorded;   // options of the session and of its callers that differ from the defaults, kept in the plan
  bool dry_run = false;  // compile only: nothing is allocated, and calls are errors
  const plan::Target* target = nullptr;  // of a dry run: what it compiles for, in place of the engine's devices
  // Extra entries of a bundle's meta.json (strings), e.g. input descriptions.
  std::map<std::string, std::string> meta;

  bool exchanges() const { return session.zero_copy || !compile.donated.empty(); }
};

// Options of a bundle that is not the graph as it is.
struct ExportOptions {
  // Those it has, as numbers of the captured graph's: the rest is left out, and no step changes a variable. None: all.
  std::optional<std::vector<int>> outputs;
  std::string signature;  // what its meta.json says of nests; "": nothing
  bool freeze = false;    // variables that no step changes are constants; what depends on them alone is computed now
};

// A compiled graph, without what its variables hold: for a program that has them, and then neither traces nor compiles.
struct SavedPlan {
  std::map<std::string, std::string> texts;      // BundleTexts (runtime/bundle/bundle.h)
  std::map<std::string, Tensor> variables = {};  // the tensors themselves, with the constants that the compiler made
};
// Carried over to another device: of its device's kind, as compiling for it would make it; of another kind, as a graph
// that resume() compiles anew. Throws kUnsupported for a plan of several devices.
SavedPlan moved_plan(SavedPlan saved, const std::string& name, const DeviceId& to, const OpRegistry& ops);

// Calls are asynchronous and pipelined; program order with eager code on the same variables is kept by their storages.
// Thread-safe calls. Destroying it waits a moment for the steps in flight, then cancels them
// (what does not end is abandoned: runtime/session/session.h).
class GraphSession {
 public:
  // Compiles for the engine's devices. Throws the compiler's errors.
  GraphSession(EagerExecutor& eager, CapturedGraph captured, GraphSessionOptions options = {});
  ~GraphSession();

  // Ends the steps in flight and the actors; calls are errors from now on. Throws kTimeout naming who is stuck.
  void close();
  // Waits for the steps in flight; false: some have not ended by then.
  bool wait_done(std::chrono::nanoseconds timeout);
  // Submits one step; inputs are copied, but for those that compile.donated names: their memory becomes the step's, and
  // the tensors, with all that share it, have none any more; a call that throws has taken nothing. Throws kValue for
  // one that cannot be donated. Outputs' memory is pending: reading waits, and throws the step's error.
  // Blocks only while `outputs_buffer_size` steps are in flight, and throws kTimeout when that takes too long.
  std::vector<Tensor> call(const std::vector<Tensor>& inputs,
                           std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
  // The same, but nothing, and nothing submitted, where it would block.
  std::optional<std::vector<Tensor>> try_call(const std::vector<Tensor>& inputs);
  // Waits until every submitted step is done; throws the first error not yet seen.
  void synchronize();
  // Session::reset(): after the end of data, or at any time.
  void reset();

  // For a loaded bundle that was not planned anew, this is the plan without pass reports.
  const CompileResult& compiled() const;
  // The plan as its session runs it: where inputs are donated, without the memory of the ports that need none.
  const plan::Plan& running_plan() const;
  const CapturedGraph& captured() const;
  // The places of the traced values, as they are inferred before any pass.
  compiler::SbpPlan layouts() const;
  // The ranks of a job run it together.
  bool of_ranks() const;
  Session& session();  // stats, traces, watchdog
  // The texts of its bundle's meta.json.
  const std::map<std::string, std::string>& meta() const;
  // Why the plan of a loaded bundle was not used, and that it was compiled anew; "" when it was.
  const std::string& replanned() const;

  // Writes plan.json, graph.txt, weights.safetensors, meta.json.
  void save(const std::string& dir) const;
  // A graph for save(), compiled anew and not to be called. Throws kUnsupported for what it cannot do.
  std::unique_ptr<GraphSession> exported(ExportOptions wanted) const;
  // The bundle that save() writes. With `known`, tensors that are in there are taken from it.
  Bundle bundle(BundledTensors* known = nullptr) const;
  // Makes a session of a bundle that was read from `dir`. With `loaded`, weights of one storage become one tensor.
  static std::unique_ptr<GraphSession> load(EagerExecutor& eager, Bundle bundle, const std::string& dir,
                                            GraphSessionOptions options, LoadedTensors* loaded);
  // The plan for resume(). Throws kUnsupported for a graph over several devices.
  SavedPlan saved_plan() const;
  // Goes on with a plan, on these variables, of which more may be given than it has. Errors call it `name`. Throws
  // kValue where one is missing, or of another type.
  static std::unique_ptr<GraphSession> resume(EagerExecutor& eager, const SavedPlan& saved, const std::string& name,
                                              GraphSessionOptions options);
  // A saved bundle with its own variables; re-plans from graph.txt when the plan was made for another target.
  static std::unique_ptr<GraphSession> load(EagerExecutor& eager, const BundleSource& source,
                                            GraphSessionOptions options = {});

 private:
  struct Impl;
  std::optional<std::vector<Tensor>> call(const std::vector<Tensor>& inputs, std::chrono::nanoseconds timeout,
                                          bool try_only);
  explicit GraphSession(std::unique_ptr<Impl> impl);
  Bundle without_weights() const;
  // With the bundle's plan where it was made for what there is here; else compiled anew.
  static std::unique_ptr<GraphSession> started(EagerExecutor& eager, CapturedGraph captured, Bundle& bundle,
                                               const std::string& dir, GraphSessionOptions options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
