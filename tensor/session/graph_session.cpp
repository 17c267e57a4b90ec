#include "tensor/session/graph_session.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/device_mesh.h"
#include "base/fix.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "compiler/sbp_search.h"
#include "graph/ops/global.h"
#include "graph/tape.h"
#include "kernels/target.h"
#include "plan/ranks.h"
#include "runtime/session/ports.h"
#include "streams/collective/world.h"
#include "streams/stream.h"
#include "tensor/session/donation.h"
#include "tensor/session/graph_session_impl.h"
#include "tensor/session/plan_cache.h"
#include "tensor/session/ranks_agree.h"

namespace sluice {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(1500);  // for steps in flight when a session is destroyed

// A result of a step, there once the step is finished.
class StepOutput final : public PendingStorage {
 public:
  StepOutput(StepHandle handle, size_t index, Timeout limit)
      : handle_(std::move(handle)), index_(index), limit_(limit) {}
  bool ready() const override { return handle_.done(); }
  bool wait_for(std::chrono::nanoseconds slice) override {
    StepHandle handle = handle_;
    try {
      (void)handle.wait(std::min(slice, limit_));  // its failure is thrown by wait()
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout || limit_ <= slice) throw;  // naming who is stuck
      return false;
    }
  }
  std::shared_ptr<Storage> wait() override {
    StepHandle handle = handle_;
    return handle.outputs()[index_].storage;
  }

 private:
  StepHandle handle_;
  size_t index_;
  Timeout limit_;
};

// Suggests how to put elsewhere whatever asks for a device that is not there.
Fix without_device(const graph::Graph& graph, const CompileOptions& options, const DeviceId& id) {
  const std::string there = DeviceId{}.str();
  if (options.device == id) return {{"option", std::string("device")}, {"value", there}};
  for (const graph::Node& node : graph.nodes()) {
    if (node.placement.device != id || !node.source.known()) continue;
    return {{"call", std::string(node.op->name)}, {"line", node.source.str()}, {"device", there}};
  }
  return {};
}

std::vector<std::vector<std::byte>> evaluate(EagerExecutor& eager, const OpDef& op, const Attrs& attrs, Types types,
                                             std::span<const void* const> inputs) {
  const ExecutorScope now(eager);
  const GradMode off(false);
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i)
    values.push_back(inputs[i] ? Value(Tensor::from_host(types[i], inputs[i])) : Value());
  std::vector<std::vector<std::byte>> results;
  for (const Value& output : call(op, values, attrs)) {
    results.emplace_back(checked_bytes(output.shape(), dtype_size(output.dtype())));
    Tensor(output).copy_to_host(results.back().data());
  }
  return results;
}

}  // namespace

std::vector<plan::DeviceDesc> GraphSession::Impl::devices() const {
  Engine& engine = eager.engine();
  const graph::Graph& graph = captured.graph;
  std::set<DeviceId> ids;
  const auto on_each_rank = [&](DeviceId id) {
    for (id.rank = 0; id.rank < options.compile.ranks; ++id.rank) ids.insert(id);
  };
  on_each_rank({});
  on_each_rank(options.compile.device);
  for (const DeviceId& device : options.compile.devices) on_each_rank(device);
  for (const graph::Node& node : graph.nodes()) {
    if (node.placement.device) on_each_rank(*node.placement.device);
    if (node.op != &ops::to_global_op()) continue;
    const DeviceMesh mesh = ops::placement_of(node.attrs).mesh;
    ids.insert(mesh.devices().begin(), mesh.devices().end());
    if (options.compile.rank_classes)  // whose plans number ranks by their classes
      for (const DeviceId& device : mesh.devices()) on_each_rank(device);
  }
  if (world != nullptr) return describe_devices(*world, engine, {ids.begin(), ids.end()});
  std::vector<plan::DeviceDesc> devices;
  for (const DeviceId& id : ids) {
    try {
      devices.push_back(engine.device(id).describe());
    } catch (const Error& error) {
      throw FixableError(error.kind(), error.what(), without_device(graph, options.compile, id));
    }
  }
  return devices;
}

void GraphSession::Impl::meet_ranks() {
  world = eager.engine().world();
  if (world != nullptr && (world->size() == 1 || !compiler::is_global(captured.graph))) world = nullptr;
  if (world == nullptr) return;
  options.compile.ranks = world->size();
  options.compile.rank = world->rank();
  for (const graph::Variable& v : captured.graph.variables()) {
    const Tensor tensor = find(v.name);
    if (tensor.defined() && eager_impl(tensor).global) options.compile.components[v.name] = *eager_impl(tensor).global;
  }
  check_same_graph(*world, captured.graph, options.compile);
}

void GraphSession::Impl::compile_graph() {
  meet_ranks();
  std::optional<KernelTarget> own;
  if (options.target == nullptr)
    own.emplace(eager.engine().kernel_cache(), devices(), MachineRates{}, &eager.engine().kernel_trials());
  const plan::Target& target = own ? *own : *options.target;
  const auto lookup = [this](const std::string& name) -> const void* {
    const auto found = captured.variables.find(name);
    if (found == captured.variables.end() || !eager_impl(found->second).on_host() || is_component(name)) return nullptr;
    return found->second.is_contiguous() ? found->second.read() : nullptr;
  };
  const auto run = [this](const OpDef& op, const Attrs& attrs, Types types, std::span<const void* const> inputs) {
    return evaluate(eager, op, attrs, types, inputs);
  };
  result = options.plans != nullptr ? options.plans->compile(captured.graph, target, options.compile, lookup, run)
                                    : compile(captured.graph, target, options.compile, lookup, run);
  const auto keep = [](plan::ShardsByName& kept, const std::vector<plan::Shard>& made, const auto& of_plan) {
    std::set<std::string> names;
    for (const auto& thing : of_plan) names.insert(thing.name);
    for (const plan::Shard& shard : made)
      if (shard.name != shard.whole && names.contains(shard.name)) kept.emplace(shard.name, shard);
  };
  keep(shards.inputs, result.partition.inputs, result.plan.inputs);
  keep(shards.outputs, result.partition.outputs, result.plan.outputs);
  keep(shards.variables, result.partition.shards, result.plan.variables);
  for (const auto& option : options.recorded) result.plan.options.push_back(option);
}

Tensor GraphSession::Impl::find(const std::string& name) const {
  const auto made = folded.find(name);
  if (made != folded.end()) return made->second;
  const auto found = captured.variables.find(name);
  return found == captured.variables.end() ? Tensor() : found->second;
}

std::shared_ptr<Storage> GraphSession::Impl::memory_on(const std::string& name, const DeviceId& home) {
  const std::string& graph_name = result.plan.name;
  Tensor tensor = find(name);
  SLUICE_CHECK(tensor.defined(), "graph '{}': no tensor for variable '{}'; every variable needs one", graph_name, name);
  EagerImpl& impl = eager_impl(tensor);
  if (impl.device() != home) {
    if (impl.sessions != 0 && options.collect_dropped) options.collect_dropped();
    SLUICE_CHECK_KIND(
        kUnsupported, impl.sessions == 0,
        "graph '{}': variable '{}' lives on {}, where another graph uses it; this one wants it on {}: compile "
        "both for one device",
        graph_name, name, impl.device().str(), home.str());
    // A variable lives where the plan uses it; eager code reads it there through to() and copy_to_host().
    const Value moved = eager.copy_for_plan(tensor, home);
    impl.move_to(eager_impl(moved).storage(), home);
  }
  SLUICE_CHECK_KIND(kUnsupported, tensor.is_contiguous() && impl.offset() == 0,
                    "graph '{}': variable '{}' is not contiguous memory of its own: strides {}; make it so before the "
                    "graph is compiled",
                    graph_name, name, tensor.strides().str());
  return impl.storage();
}

void GraphSession::Impl::share_variables() {
  for (const graph::Variable& v : captured.graph.variables()) {
    const Tensor tensor = find(v.name);
    if (!tensor.defined() || is_component(v.name)) continue;
    std::vector<std::byte> content(checked_bytes(tensor.shape(), dtype_size(tensor.dtype())));
    tensor.copy_to_host(content.data());
    world->control().broadcast(content.data(), content.size(), 0);
    if (world->rank() == 0) continue;
    eager.assign(tensor, Tensor::from_host(tensor.type(), content.data()));
  }
}

void GraphSession::Impl::bind_variables(VariableBindings& bindings) {
  std::map<std::string, DeviceId> homes;  // a variable lies where the plan wants it
  for (const plan::Variable& v : result.plan.variables) {
    const plan::Space& space = result.plan.spaces[v.space];
    DeviceId& home = homes[v.name];
    if (space.kind == plan::SpaceKind::kDevice) home = {0, space.device.kind, space.device.index};
  }
  std::map<std::string, std::vector<plan::Shard>> of;
  std::map<std::string, std::string> whole_of;  // of this rank's own variables: what the graph calls them
  for (const auto& [name, home] : homes) whole_of[name] = name;
  for (auto [name, shard] : shards.variables) {
    whole_of.erase(name);
    if (world != nullptr && shard.device.rank != world->rank()) continue;
    if (world != nullptr && !is_component(shard.whole)) {
      whole_of[name] = shard.whole;
      continue;
    }
    if (world != nullptr) shard.cuts.clear();  // the tensor holds no more than this
    shard.device = homes.at(name);
    of[shard.whole].push_back(std::move(shard));
  }
  for (const auto& [name, shards] : of) {
    memory_on(name, {});
    const Tensor tensor = find(name);
    sharded[name].parts = ShardedVariable::of(eager, eager_impl(tensor), shards);
    const auto& parts = sharded[name].parts->parts();
    for (size_t i = 0; i < parts.size(); ++i) bindings[shards[i].name] = parts[i].storage;
    bound.push_back(tensor);
    ++eager_impl(tensor).sessions;
  }
  for (const auto& [name, variable] : whole_of) {
    bindings[name] = memory_on(variable, homes[name]);
    bound.push_back(find(variable));
    ++eager_impl(bound.back()).sessions;
  }
}

void GraphSession::Impl::check_donated_ports() const {
  const std::vector<std::string>& donated = options.compile.donated;
  if (donated.empty()) return;
  const auto refuse = [&](const std::string& name, const std::string& why) {
    fail(ErrorKind::kUnsupported, "graph '{}': argument '{}' cannot be donated: {}; its memory would be copied",
         result.plan.name, name, why);
  };
  if (world != nullptr) refuse(donated.front(), "several ranks run the graph together");
  for (const std::string& name : donated)
    if (!takes.contains(name)) refuse(name, "the plan has no memory for it");
  for (const PortInfo& port : session.inputs()) {
    if (std::find(donated.begin(), donated.end(), port.name) == donated.end()) continue;
    if (!port.copied.empty()) refuse(port.name, port.copied);
    if (port.space.kind != plan::SpaceKind::kHost && !options.session.device_ports)
      refuse(port.name, "the plan reads it in " + port.space.str());
  }
}

void GraphSession::Impl::keep_folded() {
  const ExecutorScope now(eager);
  for (const auto& [name, bytes] : result.constants) {
    for (const plan::Variable& v : result.plan.variables)
      if (v.name == name) folded[name] = Tensor::from_host({v.spec.dtype, v.spec.shape}, bytes.data());
  }
}

void GraphSession::Impl::start() {
  keep_folded();
  const ExecutorScope now(eager);
  if (world != nullptr) share_variables();
  VariableBindings bindings;
  bind_variables(bindings);
  std::set<const ValueImpl*> is_bound;
  for (const Tensor& tensor : bound) is_bound.insert(tensor.impl());
  for (const graph::Variable& v : captured.graph.variables()) {
    const Tensor tensor = find(v.name);
    if (v.update == graph::kNoValue || !is_bound.contains(tensor.impl())) continue;
    if (const auto parts = sharded.find(v.name); parts != sharded.end()) parts->second.updated = true;
    updated.push_back(eager_impl(tensor).version_counter());
  }
  SessionOptions session_options = options.session;
  session_options.shards = shards;
  session_options.zero_copy = options.exchanges();
  session = Session::load(eager.engine(), result.plan, bindings, std::move(session_options));
  if (!plan::together(result.plan)) {  // with the packed copies of this machine
    plan::Plan loaded = session.plan();
    loaded.arenas = std::move(result.plan.arenas);  // those of its ports, too, which this session may not need
    loaded.buffers = std::move(result.plan.buffers);
    result.plan = std::move(loaded);
  }
  for (const PortInfo& port : session.inputs()) takes.insert(port.name);
  if (world != nullptr || takes.size() != captured.graph.inputs().size()) {
    const int parts = captured.graph.micro_batches();
    for (const graph::Input& input : captured.graph.inputs()) {
      TensorType type = captured.graph.type(input.value);
      if (type.shape.rank() > 0) type.shape[0] *= parts;
      arguments.push_back(std::move(type));
    }
  }
  for (const PortInfo& port : session.outputs()) results.push_back(port.type);
  check_donated_ports();
  results_vary = !plan::result_extents(named_outputs(result.plan, shards)).empty();
}

GraphSession::GraphSession(EagerExecutor& eager, CapturedGraph captured, GraphSessionOptions options)
    : GraphSession(std::make_unique<Impl>(eager, std::move(captured), std::move(options))) {
  log(LogLevel::kDebug, LogArea::kTensor, "graph '{}': captured {} nodes, {} variables", impl_->captured.graph.name,
      impl_->captured.graph.nodes().size(), impl_->captured.graph.variables().size());
  if (impl_->options.compile.cast_updates) {
    SLUICE_CHECK_KIND(kUnsupported, !compiler::is_global(impl_->captured.graph),
                      "graph '{}': copies of parameters that updates write (cast_updates): the graph is for several "
                      "devices; leave the option out",
                      impl_->captured.graph.name);
    impl_->half_copies.add_to(impl_->captured);
  }
  impl_->compile_graph();
  if (!impl_->options.dry_run) impl_->start();
}

GraphSession::GraphSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GraphSession::~GraphSession() {
  const UninterruptedScope here;
  try {
    close();
  } catch (const std::exception&) {
    // A session that is stuck is abandoned now.
  }
}

bool GraphSession::wait_done(std::chrono::nanoseconds timeout) {
  if (!impl_->session.valid()) return true;
  try {
    impl_->session.wait_all(timeout);
    return true;
  } catch (const Error& error) {
    return error.kind() != ErrorKind::kTimeout;  // the steps' own handles carry their errors
  }
}

void GraphSession::close() {
  if (!impl_->session.valid()) return;
  static_cast<void>(wait_done(std::min<Timeout>(kGrace, impl_->options.session.stop_timeout)));
  impl_->session.stop();
  for (const auto& [name, variable] : impl_->sharded) variable.parts->gather();
}

InputTensor GraphSession::Impl::component_of(const std::string& name, const Tensor& input) const {
  const EagerImpl& impl = eager_impl(input);
  const GlobalPlacement& expected = options.compile.components.at(name);
  const bool fits = impl.global && impl.global->mesh == expected.mesh &&
                    (impl.global->sbp == expected.sbp || expected.mesh.size() == 1);
  SLUICE_CHECK(fits, "graph '{}': input '{}' lies as {}; expected {}, as when the graph was compiled", result.plan.name,
               name, impl.global ? impl.global->str() : "a local tensor", expected.str());
  impl.storage()->before_read();
  return {impl.data(), impl.memory_spec()};
}

std::vector<Tensor> GraphSession::call(const std::vector<Tensor>& inputs, std::chrono::nanoseconds timeout) {
  return *call(inputs, timeout, false);
}
std::optional<std::vector<Tensor>> GraphSession::try_call(const std::vector<Tensor>& inputs) {
  return call(inputs, std::chrono::nanoseconds::zero(), true);
}

std::optional<std::vector<Tensor>> GraphSession::call(const std::vector<Tensor>& inputs,
                                                      std::chrono::nanoseconds timeout, bool try_only) {
  SLUICE_CHECK_KIND(kRuntime, impl_->session.valid(), "graph '{}': was compiled by a dry run; it cannot be called",
                    impl_->result.plan.name);
  const std::vector<graph::Input>& known = impl_->captured.graph.inputs();
  Donations donations(impl_->result.plan.name);
  const std::vector<std::string>& donated = impl_->options.compile.donated;
  // A rank, or the plan, may have nothing of an input. The session checks the others.
  const bool as_they_come = impl_->arguments.empty();
  const auto check = [&](size_t index) {
    check_argument(impl_->result.plan.name, known[index].name, impl_->arguments[index], inputs[index].spec());
  };
  std::vector<InputTensor> data;
  std::vector<Tensor> host;
  std::vector<std::pair<std::string, Tensor>> local;
  data.reserve(inputs.size());
  host.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    SLUICE_CHECK_KIND(kType, input.defined(), "graph '{}': an input is undefined; pass a tensor",
                      impl_->result.plan.name);
    host.push_back(eager_impl(input).on_host() ? input : Tensor(impl_->eager.copy_to(input, {})));
    const size_t index = host.size() - 1;
    const std::string* name = index < known.size() ? &known[index].name : nullptr;
    if (name != nullptr && impl_->is_component(*name)) {
      check(index);
      const InputTensor component = impl_->component_of(*name, input);
      if (impl_->takes.contains(*name)) data.push_back(component);
      continue;
    }
    if (name != nullptr && impl_->world != nullptr && !impl_->inputs_agree) local.emplace_back(*name, host.back());
    if (as_they_come || name == nullptr || impl_->takes.contains(*name)) {
      if (name != nullptr && std::find(donated.begin(), donated.end(), *name) != donated.end())
        donations.add(data.size(), *name, input);
      data.push_back({host.back().read("graph input"), host.back().spec()});
    } else {
      check(index);
    }
  }
  if (!local.empty()) check_same_inputs(*impl_->world, impl_->result.plan.name, local);
  impl_->inputs_agree = true;
  for (const auto& [name, variable] : impl_->sharded) variable.parts->before_step(variable.updated);
  if (impl_->half_copies.any()) impl_->half_copies.refresh(impl_->eager);
  donations.check_apart(host);
  donations.take(data);
  const std::optional<StepHandle> submitted =
      try_only ? impl_->session.try_submit(data) : impl_->session.submit(data, timeout);
  if (!submitted) return std::nullopt;
  donations.keep();
  if (impl_->half_copies.any()) impl_->half_copies.submitted();
  const StepHandle& step = *submitted;
  for (const auto& [name, variable] : impl_->sharded)
    if (variable.updated) variable.parts->step_submitted();
  count_step(impl_->updated);
  std::vector<Tensor> outputs;
  std::vector<TensorType> types = impl_->results;
  if (impl_->results_vary) {  // a tensor has a shape, which the step makes
    StepHandle done = step;
    done.wait(impl_->options.session.wait_timeout).throw_if_error();
    for (size_t i = 0; i < types.size(); ++i) types[i] = done.outputs()[i].type;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    outputs.emplace_back(Value(std::make_shared<EagerImpl>(
        std::make_shared<StepOutput>(step, i, impl_->options.session.wait_timeout), types[i])));
  }
  return outputs;
}

void GraphSession::reset() { impl_->session.reset(); }
void GraphSession::synchronize() { impl_->session.wait_all(impl_->options.session.wait_timeout); }
const CompileResult& GraphSession::compiled() const { return impl_->result; }
const CapturedGraph& GraphSession::captured() const { return impl_->captured; }
compiler::SbpPlan GraphSession::layouts() const {
  return compiler::choose_sbp(impl_->captured.graph, impl_->options.compile);
}
bool GraphSession::of_ranks() const { return impl_->world != nullptr; }

const std::map<std::string, std::string>& GraphSession::meta() const { return impl_->options.meta; }

const std::string& GraphSession::replanned() const { return impl_->replanned; }
Session& GraphSession::session() { return impl_->session; }
const plan::Plan& GraphSession::running_plan() const {
  return impl_->session.valid() && impl_->options.exchanges() ? impl_->session.plan() : impl_->result.plan;
}

}  // namespace sluice
