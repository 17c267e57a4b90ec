// The bodies of include/sluice/compile.h.
#include <cstring>

#include "include/sluice/compile.h"
#include "runtime/api_support.h"
#include "runtime/bundle.h"
#include "runtime/engine.h"
#include "runtime/extension.h"
#include "runtime/family_bundle.h"
#include "runtime/shared_arenas.h"
#include "tensor/eager.h"
#include "tensor/graph_family.h"
#include "tensor/graph_session.h"

namespace sluice::api {
namespace {

GraphSessionOptions session_options(const std::string& name, const CompileOptions& options,
                                    std::map<std::string, std::string> meta) {
  SLUICE_CHECK(options.steps_in_flight >= 1, "compile: steps_in_flight: {}; must be at least 1",
               options.steps_in_flight);
  SLUICE_CHECK(options.cores >= 0, "compile: cores: {}; must not be negative", options.cores);
  GraphSessionOptions o;
  o.compile.name = name;
  o.compile.device = parse_device(options.device);
  o.compile.outputs_buffer_size = options.steps_in_flight;
  o.compile.memory_budget = options.memory_budget;
  o.compile.workspace_limit = options.workspace_limit;
  o.compile.granularity = options.one_actor_per_op ? Granularity::kOp : Granularity::kProgram;
  o.compile.disabled_passes = options.disabled_passes;
  o.compile.donated = options.donated;
  o.compile.cores = options.cores;
  o.meta = std::move(meta);
  return o;
}

void write(EagerExecutor& eager, CapturedGraph captured, const std::string& to, const CompileOptions& options,
           std::map<std::string, std::string> meta) {
  GraphSessionOptions o = session_options(captured.graph.name, options, std::move(meta));
  // Loaded, not only compiled: a bundle is written once its plan has been accepted and its kernels prepared.
  GraphSession(eager, std::move(captured), std::move(o)).save(to);
}

using SharedTensors = std::map<const Storage*, Value>;

// The graph of a bundle with its weights, which bundles of one family share.
CapturedGraph captured_of(EagerExecutor& eager, const Bundle& loaded, const std::string& folder,
                          const std::map<std::string, std::string>& meta, SharedTensors& shared) {
  const OpRegistry& ops = eager.ops();
  check_extensions(folder, meta, [&](const std::string& op) { return ops.find(op) != nullptr; });
  CapturedGraph captured{graph::parse(loaded.graph_text, folder + "/graph.txt", ops), {}};
  for (const graph::Variable& v : captured.graph.variables()) {
    const auto found = loaded.weights.find(v.name);
    SLUICE_CHECK(found != loaded.weights.end(), "{}: variable '{}' has no weight; every variable needs one", folder,
                 v.name);
    const auto [tensor, fresh] = shared.try_emplace(found->second.storage.get());
    if (fresh)
      tensor->second = Value(std::make_shared<EagerImpl>(found->second.storage, found->second.spec, DeviceId{}));
    captured.variables[v.name] = tensor->second;
  }
  return captured;
}

void replan_family(EagerExecutor& eager, const std::string& bundle, const std::string& to,
                   const CompileOptions& options) {
  const FamilyBundle loaded = load_family_bundle(bundle, make_host_allocator());
  const auto arenas = std::make_shared<sluice::SharedArenas>(eager.engine());
  SharedTensors shared;
  std::vector<std::unique_ptr<GraphSession>> sessions;
  std::vector<const GraphSession*> members;
  for (size_t m = 0; m < loaded.members.size(); ++m) {
    CapturedGraph captured = captured_of(eager, loaded.members[m], member_directory(bundle, m), loaded.meta, shared);
    GraphSessionOptions o = session_options(captured.graph.name, options, loaded.meta);
    o.arenas = arenas;
    members.push_back(
        sessions.emplace_back(std::make_unique<GraphSession>(eager, std::move(captured), std::move(o))).get());
  }
  save_family(to, loaded.family, members, loaded.meta);
}

}  // namespace

void compile(Engine& engine, const std::string& graph_text, const std::vector<NamedTensor>& weights,
             const std::string& bundle, const CompileOptions& options) {
  guarded([&] {
    EagerExecutor eager(inside(engine));
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
    EagerExecutor eager(inside(engine));
    const ExecutorScope scope(eager);
    if (is_family_bundle(bundle)) return replan_family(eager, bundle, to, options);
    Bundle loaded = load_bundle(bundle);
    SharedTensors shared;
    CapturedGraph captured = captured_of(eager, loaded, bundle, loaded.meta, shared);
    write(eager, std::move(captured), to, options, std::move(loaded.meta));
  });
}

}  // namespace sluice::api
