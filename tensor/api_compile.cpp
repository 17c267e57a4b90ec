// The bodies of include/sluice/compile.h.
#include <cstring>

#include "include/sluice/compile.h"
#include "runtime/api_support.h"
#include "runtime/bundle.h"
#include "runtime/extension.h"
#include "tensor/eager.h"
#include "tensor/graph_session.h"

namespace sluice::api {
namespace {

void write(EagerExecutor& eager, CapturedGraph captured, const std::string& to, const CompileOptions& options,
           std::map<std::string, std::string> meta) {
  SLUICE_CHECK(options.steps_in_flight >= 1, "compile: steps_in_flight: {}; must be at least 1",
               options.steps_in_flight);
  GraphSessionOptions o;
  o.compile.name = captured.graph.name;
  o.compile.device = parse_device(options.device);
  o.compile.outputs_buffer_size = options.steps_in_flight;
  o.compile.memory_budget = options.memory_budget;
  o.compile.workspace_limit = options.workspace_limit;
  o.compile.granularity = options.one_actor_per_op ? Granularity::kOp : Granularity::kProgram;
  o.compile.disabled_passes = options.disabled_passes;
  o.compile.donated = options.donated;
  o.meta = std::move(meta);
  // Loaded, not only compiled: a bundle is written once its plan has been accepted and its kernels prepared.
  GraphSession(eager, std::move(captured), std::move(o)).save(to);
}

}  // namespace

void compile(Engine& engine, const std::string& graph_text, const std::vector<NamedTensor>& weights,
             const std::string& bundle, const CompileOptions& options) {
  guarded([&] {
    EagerExecutor eager(engine.impl());
    const ExecutorScope scope(eager);
    CapturedGraph captured{graph::parse(graph_text, "graph", eager.ops()), {}};
    for (const NamedTensor& w : weights)
      captured.variables[w.name] = sluice::Tensor::from_host(type_of_whole(w.name, w.tensor), w.tensor.raw());
    for (const graph::Variable& v : captured.graph.variables()) {
      const auto found = captured.variables.find(v.name);
      const TensorType& type = captured.graph.type(v.value);
      SLUICE_CHECK(found != captured.variables.end(), "compile: variable '{}' ({}): no weight of that name; give one",
                   v.name, type.str());
      SLUICE_CHECK(found->second.type() == type, "compile: variable '{}': weight is {}; the graph says {}", v.name,
                   found->second.type().str(), type.str());
    }
    write(eager, std::move(captured), bundle, options, {});
  });
}

void replan(Engine& engine, const std::string& bundle, const std::string& to, const CompileOptions& options) {
  guarded([&] {
    EagerExecutor eager(engine.impl());
    const ExecutorScope scope(eager);
    Bundle loaded = load_bundle(bundle);
    const OpRegistry& ops = eager.ops();
    check_extensions(bundle, loaded.meta, [&](const std::string& op) { return ops.find(op) != nullptr; });
    CapturedGraph captured{graph::parse(loaded.graph_text, bundle + "/graph.txt", ops), {}};
    for (const graph::Variable& v : captured.graph.variables()) {
      const auto found = loaded.weights.find(v.name);
      SLUICE_CHECK(found != loaded.weights.end(), "{}: variable '{}' has no weight; every variable needs one", bundle,
                   v.name);
      captured.variables[v.name] =
          Value(std::make_shared<EagerImpl>(found->second.storage, found->second.spec, DeviceId{}));
    }
    write(eager, std::move(captured), to, options, std::move(loaded.meta));
  });
}

}  // namespace sluice::api
