#pragma once
// Inside of GraphSession.
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/bundle/bundle.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "tensor/eager.h"
#include "tensor/eager_memory.h"
#include "tensor/session/graph_session.h"
#include "tensor/session/half_copies.h"
#include "tensor/session/sharded_variable.h"
#include "tensor/versions.h"

namespace sluice {

struct GraphSession::Impl {
  Impl(EagerExecutor& executor, CapturedGraph graph, GraphSessionOptions opts)
      : eager(executor), captured(std::move(graph)), options(std::move(opts)) {}

  ~Impl() {
    for (const Tensor& tensor : bound) --eager_impl(tensor).sessions;
  }

  EagerExecutor& eager;
  CapturedGraph captured;
  GraphSessionOptions options;
  std::shared_ptr<collective::World> world;  // whose ranks run it together; null: this process alone
  CompileResult result;
  std::string replanned;                 // of a bundle: why its plan was not used
  std::map<std::string, Tensor> folded;  // constants the compiler made
  std::vector<VersionCounter> updated;   // of variables that a step writes
  HalfCopies half_copies;                // where options.compile.cast_updates asks for them
  std::vector<Tensor> bound;             // all variables
  struct Sharded {
    std::shared_ptr<ShardedVariable> parts;
    bool updated = false;
  };
  std::map<std::string, Sharded> sharded;  // variables that lie on several devices
  plan::Shards shards;                     // of the plan
  std::set<std::string> takes;             // the inputs of which this process has something
  std::vector<TensorType> arguments;       // of a step, where the session has no port for the whole of each; else empty
  std::vector<TensorType> results;         // of a step
  bool results_vary = false;               // some are as long as a step makes them (plan/extents.h)
  Session session;
  std::atomic<bool> inputs_agree{false};  // those of the first call that each rank has for itself

  // The devices that the graph names, and the host; in a job of several ranks, those of all.
  std::vector<plan::DeviceDesc> devices() const;
  void compile_graph();
  // The constants that the compiler has made, as tensors.
  void keep_folded();
  void start();
  // Throws kUnsupported where the session would copy what is donated.
  void check_donated_ports() const;
  // Joins the ranks of the job where the graph is for several devices.
  void meet_ranks();
  // A variable of which no rank has a component is rank 0's everywhere.
  void share_variables();
  bool is_component(const std::string& name) const {
    return world != nullptr && options.compile.components.contains(name);
  }
  // The component of an input that this rank has.
  InputTensor component_of(const std::string& name, const Tensor& input) const;
  // A variable's memory in `home`.
  std::shared_ptr<Storage> memory_on(const std::string& name, const DeviceId& home);
  void bind_variables(VariableBindings& bindings);
  Tensor find(const std::string& name) const;
  // The tensor that a bundle keeps of each variable. If the ranks have parts of a variable, rank 0 gets the whole and
  // the others nothing.
  BundleTensor whole_of(const std::string& name, const TensorType& type);
  // The plan of a bundle as it is, with this process's share of the weights.
  void adopt(Bundle& bundle);
};

}  // namespace sluice
