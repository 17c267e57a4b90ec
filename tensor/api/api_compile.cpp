// The bodies of include/sluice/compile.h.
#include <algorithm>
#include <cstring>

#include "include/sluice/compile.h"
#include "runtime/api/api_support.h"
#include "runtime/bundle/bundle.h"
#include "runtime/extension.h"
#include "runtime/family/family_bundle.h"
#include "runtime/session/engine.h"
#include "runtime/session/shared_arenas.h"
#include "tensor/eager.h"
#include "tensor/session/graph_family.h"
#include "tensor/session/graph_session.h"

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
  o.compile.device_ports = o.session.device_ports = options.device_ports;
  o.compile.cores = options.cores;
  o.meta = std::move(meta);
  return o;
}

// Tensors that planning computes with. Their memory goes back: it may be that of all weights, and steps need little.
class Planning {
 public:
  explicit Planning(Engine& engine) : memory_(inside(engine).caching_allocator()), eager_(inside(engine)) {}
  EagerExecutor& eager() { return eager_; }

 private:
  struct Released {
    std::shared_ptr<Allocator> memory;
    ~Released() { memory->release_kept(); }
  };
  const Released memory_;  // after the tensors
  EagerExecutor eager_;
  const ExecutorScope scope_{eager_};
};

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

void replan_family(EagerExecutor& eager, const BundleSource& source, const std::string& to,
                   const CompileOptions& options) {
  const std::string& bundle = source.name();
  const FamilyBundle loaded = load_family_bundle(source, make_host_allocator());
  const auto arenas = std::make_shared<sluice::SharedArenas>(eager.engine());
  SharedTensors shared;
  std::vector<std::unique_ptr<GraphSession>> sessions;
  std::vector<const GraphSession*> members;
  for (size_t m = 0; m < loaded.members.size(); ++m) {
    CapturedGraph captured = captured_of(eager, loaded.members[m], member_directory(bundle, m), loaded.meta, shared);
    GraphSessionOptions o = session_options(captured.graph.name, options, loaded.meta);
    o.session.arenas = arenas;
    members.push_back(
        sessions.emplace_back(std::make_unique<GraphSession>(eager, std::move(captured), std::move(o))).get());
  }
  save_family(to, loaded.family, members, loaded.meta);
}

// `types`: of this port, by member. An axis without a dim that differs between them is of another kind.
plan::FamilyPort family_port(const Port& port, const std::vector<plan::Dim>& dims,
                             const std::vector<TensorType>& types) {
  plan::FamilyPort made{port.name, types.front().dtype, {}};
  for (int a = 0; a < types.front().shape.rank(); ++a) {
    const size_t axis = static_cast<size_t>(a);
    const auto dim = std::find_if(dims.begin(), dims.end(), [&](const plan::Dim& d) {
      return axis < port.dims.size() && d.name == port.dims[axis];
    });
    const int64_t size = types.front().shape[a];
    const bool fixed =
        std::all_of(types.begin(), types.end(), [&](const TensorType& type) { return type.shape[a] == size; });
    if (dim != dims.end())
      made.axes.push_back({static_cast<int>(dim - dims.begin()), 0});
    else
      made.axes.push_back(fixed ? plan::FamilyAxis{plan::FamilyAxis::kFixed, size}
                                : plan::FamilyAxis{plan::FamilyAxis::kOther, 0});
  }
  return made;
}

// The ports of a family, from the names that each member has of them.
std::vector<plan::FamilyPort> family_ports(const std::vector<Port>& ports, const std::vector<plan::Dim>& dims,
                                           const std::vector<std::vector<plan::NamedType>>& members) {
  std::vector<plan::FamilyPort> made;
  for (const Port& port : ports) {
    std::vector<TensorType> types;
    for (size_t m = 0; m < members.size(); ++m) {
      const auto found = std::find_if(members[m].begin(), members[m].end(),
                                      [&](const plan::NamedType& type) { return type.name == port.name; });
      SLUICE_CHECK(found != members[m].end(), "join: member {} has no '{}'; all members need the same names", m,
                   port.name);
      SLUICE_CHECK(types.empty() || found->type.shape.rank() == types.front().shape.rank(),
                   "join: '{}' of member {} is {}; of the first it is {}", port.name, m, found->type.str(),
                   types.front().str());
      types.push_back(found->type);
    }
    made.push_back(family_port(port, dims, types));
  }
  return made;
}

}  // namespace

void join(const std::vector<std::string>& members, const std::string& like, const std::vector<Port>& inputs,
          const std::vector<Port>& outputs, const std::string& to) {
  guarded([&] {
    FamilyBundle joined{load_family_plans(like).family, {}, {}};
    SLUICE_CHECK(!members.empty() && members.size() == joined.family.members.size(),
                 "join: {} bundles; the family of '{}' has {} members", members.size(), like,
                 joined.family.members.size());
    std::vector<std::vector<plan::NamedType>> taken, given;
    for (const std::string& member : members) {
      Bundle& bundle = joined.members.emplace_back(load_bundle(member));
      taken.push_back(named_inputs(bundle.plan));
      given.push_back(plan::visible(plan::named_outputs(bundle.plan)));
    }
    joined.family.name = joined.members.front().plan.name;
    joined.family.inputs = family_ports(inputs, joined.family.dims, taken);
    joined.family.outputs = family_ports(outputs, joined.family.dims, given);
    for (size_t m = 0; m < members.size(); ++m) plan::check_member(joined.family, m, taken[m], given[m]);
    joined.meta = joined.members.front().meta;
    save_family_bundle(to, joined);
  });
}

void compile(Engine& engine, const std::string& graph_text, const std::vector<NamedTensor>& weights,
             const std::string& bundle, const CompileOptions& options) {
  guarded([&] {
    Planning planning(engine);
    EagerExecutor& eager = planning.eager();
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
    Planning planning(engine);
    EagerExecutor& eager = planning.eager();
    const BundleSource source(bundle);
    if (is_family_bundle(source)) return replan_family(eager, source, to, options);
    Bundle loaded = load_bundle(source, make_host_allocator());
    SharedTensors shared;
    CapturedGraph captured = captured_of(eager, loaded, bundle, loaded.meta, shared);
    write(eager, std::move(captured), to, options, std::move(loaded.meta));
  });
}

}  // namespace sluice::api
