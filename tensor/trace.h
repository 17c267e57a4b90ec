#pragma once
// Tracing: inside a TraceScope, ops that touch a traced value, a registered variable or a generator become nodes of a
// graph; ops on constants run now. Views and in-place writes are functionalised; what happened to registered
// variables becomes their update at the end of a step.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/executor.h"
#include "graph/graph.h"
#include "tensor/eager.h"
#include "tensor/scoped_setting.h"
#include "tensor/tensor.h"

namespace sluice {

// Eager tensors whose content a graph has taken over as constants: whether it is still what they hold.
class TakenContents {
 public:
  void add(const TensorImpl& tensor);
  void forget_changed();  // what build() writes to itself
  // Whether one has been written to. One that nobody has any more is as it was.
  bool changed() const;

 private:
  std::map<const uint64_t*, std::pair<std::weak_ptr<uint64_t>, uint64_t>> versions_;
};

// A graph and the tensors behind its variables, constants included, by variable name.
struct CapturedGraph {
  graph::Graph graph;
  std::map<std::string, Tensor> variables;
  // Inputs, by their number, on whose strides it depends: they decided what is a view of what, and one was written to.
  std::vector<int> ordered = {};
  TakenContents taken = {};
};

class TraceExecutor;

// Starts tracing on this thread until finish() or destruction; the innermost scope counts. Gradients that leaves
// receive inside belong to the graph: the leaves get their own .grad back at the end.
class TraceScope {
 public:
  TraceScope(EagerExecutor& eager, std::string graph_name);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  // `strides`: of the argument that the trace is for; they decide, as in eager mode, which reshapes are views. None:
  // contiguous.
  Tensor add_input(const std::string& name, const TensorType& type, const std::optional<Strides>& strides = {});
  // `tensor` (eager, not a view) may be read and written by the graph under `name`. Tensors that share its memory are
  // seen as the same variable. Registering one again under another name is ignored.
  void register_variable(const std::string& name, const Value& tensor);
  // Ends the trace. Outputs may be traced or eager (constants). Variables never touched are left out.
  CapturedGraph finish(const std::vector<std::pair<std::string, Value>>& outputs);

  TraceExecutor& executor() { return *executor_; }
  graph::Graph& graph();

 private:
  std::unique_ptr<TraceExecutor> executor_;
  std::unique_ptr<ExecutorScope> scope_;
  TraceExecutor* previous_;
};

// The trace of this thread, or null in eager mode.
TraceExecutor* current_trace();

// The user's code has the strides of `tensor`, and may do anything with them.
void strides_told(const Value& tensor);
// They decided that there is a view, or this `copy` (undefined: a view), which is seen where the graph writes to
// either.
void strides_decided(const Value& tensor, const Value& copy);

// Placement of nodes made inside (`with sl.device("sim:0")`, `stream="host"`); unset fields keep the outer scope's.
struct Placing {
  graph::Placement placement;
  int quota = 0;
};
class PlacementScope {
 public:
  explicit PlacementScope(const graph::Placement& placement, int quota = 0);

 private:
  ScopedSetting<Placing>::Scope scope_;
};
// The device of the innermost scope, if any: where creation functions put eager tensors.
std::optional<DeviceId> current_placement_device();

// Name of the module whose forward runs ("model.layer1.conv1").
class ModuleScope {
 public:
  explicit ModuleScope(std::string name);

 private:
  ScopedSetting<std::string>::Scope scope_;
};

// Says what is kept nevertheless of the values in a CheckpointScope: nothing; products and convolutions, which take
// longest to compute; of these, no products of many matrices by as many; everything.
enum class CheckpointPolicy : uint8_t { kNothing, kDots, kDotsWithoutBatch, kEverything };
// The policy by JAX's name: "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable",
// "everything_saveable". Throws kValue naming them.
CheckpointPolicy checkpoint_policy(std::string_view name);

// Values that nodes made inside give to each other need not be kept for the backward pass: it computes them again. The
// innermost of scopes within each other counts.
struct Recomputing {
  int region = 0;
  CheckpointPolicy policy = CheckpointPolicy::kNothing;
};
class CheckpointScope {
 public:
  explicit CheckpointScope(CheckpointPolicy policy = CheckpointPolicy::kNothing);

 private:
  ScopedSetting<Recomputing>::Scope scope_;
};

// Nodes made inside run once per `every` micro-batches of a step.
class RateScope {
 public:
  explicit RateScope(int every);

 private:
  ScopedSetting<int>::Scope scope_;
};

// Tells the user's line a node comes from. Called for every node traced on this thread; null clears it.
void set_source_provider(std::function<SourceLocation()> provider);

}  // namespace sluice
