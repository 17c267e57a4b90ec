#include "tensor/graph_session.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/device_mesh.h"
#include "base/fix.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "compiler/sbp_infer.h"
#include "graph/autodiff/tape.h"
#include "graph/kernel_check.h"
#include "graph/ops/global.h"
#include "kernels/target.h"
#include "runtime/bundle.h"
#include "runtime/engine.h"
#include "runtime/extension.h"
#include "runtime/session.h"
#include "streams/stream.h"
#include "tensor/sharded_variable.h"

namespace sluice {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(1500);  // for steps in flight when a session is destroyed

EagerImpl& eager_impl(const Value& value) { return static_cast<EagerImpl&>(*value.impl()); }

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

// What puts elsewhere whatever asks for a device that is not there.
Fix without_device(const graph::Graph& graph, const CompileOptions& options, const DeviceId& id) {
  const std::string there = DeviceId{}.str();
  if (options.device == id) return {{"option", std::string("device")}, {"value", there}};
  for (const graph::Node& node : graph.nodes()) {
    if (node.placement.device != id || !node.source.known()) continue;
    return {{"call", std::string(node.op->name)}, {"line", node.source.str()}, {"device", there}};
  }
  return {};
}

// The devices that a graph names, and the host.
std::vector<plan::DeviceDesc> devices_of(Engine& engine, const graph::Graph& graph, const CompileOptions& options) {
  std::set<DeviceId> ids{DeviceId{}, options.device};
  for (const graph::Node& node : graph.nodes()) {
    if (node.placement.device) ids.insert(*node.placement.device);
    if (node.op != &ops::to_global_op()) continue;
    const DeviceMesh mesh = parse_mesh(attr<std::string>(node.attrs, 0));
    ids.insert(mesh.devices().begin(), mesh.devices().end());
  }
  std::vector<plan::DeviceDesc> devices;
  for (const DeviceId& id : ids) {
    try {
      devices.push_back(engine.device(id).describe());
    } catch (const Error& error) {
      throw FixableError(error.kind(), error.what(), without_device(graph, options, id));
    }
  }
  return devices;
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

struct GraphSession::Impl {
  Impl(EagerExecutor& executor, CapturedGraph graph, GraphSessionOptions opts)
      : eager(executor), captured(std::move(graph)), options(std::move(opts)) {}

  ~Impl() {
    for (const Tensor& tensor : bound) --eager_impl(tensor).sessions;
  }

  EagerExecutor& eager;
  CapturedGraph captured;
  GraphSessionOptions options;
  CompileResult result;
  std::map<std::string, Tensor> folded;  // constants the compiler made
  std::vector<Tensor> updated;           // variables a step writes
  std::vector<Tensor> bound;             // all variables
  struct Sharded {
    std::shared_ptr<ShardedVariable> parts;
    bool updated = false;
  };
  std::map<std::string, Sharded> sharded;  // variables that lie on several devices
  Session session;

  void compile_graph();
  void start();
  std::shared_ptr<Storage> bind(const plan::Plan& plan, const plan::Variable& variable);
  // A variable's memory in `home`.
  std::shared_ptr<Storage> memory_on(const std::string& name, const DeviceId& home);
  void bind_shards(VariableBindings& bindings);
  Tensor find(const std::string& name) const;
};

void GraphSession::Impl::compile_graph() {
  const KernelTarget target(eager.engine().kernels(), devices_of(eager.engine(), captured.graph, options.compile));
  const auto lookup = [this](const std::string& name) -> const void* {
    const auto found = captured.variables.find(name);
    if (found == captured.variables.end() || found->second.device().kind != DeviceKind::kCpu) return nullptr;
    return found->second.is_contiguous() ? found->second.read() : nullptr;
  };
  const auto run = [this](const OpDef& op, const Attrs& attrs, Types types, std::span<const void* const> inputs) {
    return evaluate(eager, op, attrs, types, inputs);
  };
  result = compile(captured.graph, target, options.compile, lookup, run);
  for (const auto& option : options.recorded) result.plan.options.push_back(option);
}

Tensor GraphSession::Impl::find(const std::string& name) const {
  const auto made = folded.find(name);
  if (made != folded.end()) return made->second;
  const auto found = captured.variables.find(name);
  return found == captured.variables.end() ? Tensor() : found->second;
}

std::shared_ptr<Storage> GraphSession::Impl::bind(const plan::Plan& plan, const plan::Variable& variable) {
  const plan::Space& space = plan.spaces[variable.space];
  return memory_on(variable.name, space.kind == plan::SpaceKind::kDevice ? space.device : DeviceId{});
}

std::shared_ptr<Storage> GraphSession::Impl::memory_on(const std::string& name, const DeviceId& home) {
  const std::string& graph_name = result.plan.name;
  Tensor tensor = find(name);
  SLUICE_CHECK(tensor.defined(), "graph '{}': no tensor for variable '{}'; every variable needs one", graph_name, name);
  EagerImpl& impl = eager_impl(tensor);
  if (impl.device() != home) {
    SLUICE_CHECK_KIND(
        kUnsupported, impl.sessions == 0,
        "graph '{}': variable '{}' lives on {}, where another graph uses it; this one wants it on {}: compile "
        "both for one device",
        graph_name, name, impl.device().str(), home.str());
    // A variable lives where the plan uses it; eager code reads it there through to() and copy_to_host().
    const Value moved = eager.copy_to(tensor, home);
    impl.move_to(eager_impl(moved).storage(), home);
  }
  SLUICE_CHECK_KIND(kUnsupported, tensor.is_contiguous() && impl.offset() == 0,
                    "graph '{}': variable '{}' is not contiguous memory of its own: strides {}; make it so before the "
                    "graph is compiled",
                    graph_name, name, tensor.strides().str());
  return impl.storage();
}

void GraphSession::Impl::bind_shards(VariableBindings& bindings) {
  std::map<std::string, DeviceId> homes;  // a part lies where the plan wants it
  for (const plan::Variable& v : result.plan.variables) {
    const plan::Space& space = result.plan.spaces[v.space];
    homes[v.name] = space.kind == plan::SpaceKind::kDevice ? space.device : DeviceId{};
  }
  std::map<std::string, std::vector<VariableShard>> of;
  for (VariableShard shard : result.partition.shards) {
    const auto home = homes.find(shard.name);
    if (home == homes.end()) continue;
    shard.device = home->second;
    of[shard.variable].push_back(std::move(shard));
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
}

void GraphSession::Impl::start() {
  const ExecutorScope now(eager);
  for (const auto& [name, bytes] : result.constants) {
    for (const plan::Variable& v : result.plan.variables)
      if (v.name == name) folded[name] = Tensor::from_host({v.spec.dtype, v.spec.shape}, bytes.data());
  }
  VariableBindings bindings;
  bind_shards(bindings);
  for (const plan::Variable& v : result.plan.variables) {
    if (bindings.contains(v.name)) continue;
    bindings[v.name] = bind(result.plan, v);
    bound.push_back(find(v.name));
    ++eager_impl(bound.back()).sessions;
  }
  for (const graph::Variable& v : captured.graph.variables()) {
    const auto parts = sharded.find(v.name);
    if (v.update == graph::kNoValue || (parts == sharded.end() && !bindings.contains(v.name))) continue;
    if (parts != sharded.end()) parts->second.updated = true;
    updated.push_back(captured.variables.at(v.name));
  }
  SessionOptions session_options;
  session_options.functions = options.functions;
  session_options.trace = options.trace;
  session_options.check_numerics = options.check_numerics;
  session_options.wait_timeout = options.wait_timeout;
  session_options.stop_timeout = options.stop_timeout;
  session = Session::load(eager.engine(), result.plan, bindings, std::move(session_options));
}

GraphSession::GraphSession(EagerExecutor& eager, CapturedGraph captured, GraphSessionOptions options)
    : GraphSession(std::make_unique<Impl>(eager, std::move(captured), std::move(options))) {
  log(LogLevel::kDebug, LogArea::kTensor, "graph '{}': captured {} nodes, {} variables", impl_->captured.graph.name,
      impl_->captured.graph.nodes().size(), impl_->captured.graph.variables().size());
  impl_->compile_graph();
  if (!impl_->options.dry_run) impl_->start();
}

GraphSession::GraphSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GraphSession::~GraphSession() {
  const UninterruptedScope here;
  try {
    close();
  } catch (const std::exception&) {
    // What is stuck is abandoned now.
  }
}

void GraphSession::close() {
  if (!impl_->session.valid()) return;
  try {
    impl_->session.wait_all(std::min<Timeout>(kGrace, impl_->options.stop_timeout));
  } catch (const Error&) {
    // The steps' own handles carry their errors.
  }
  impl_->session.stop();
  for (const auto& [name, variable] : impl_->sharded) variable.parts->gather();
}

std::vector<Tensor> GraphSession::call(const std::vector<Tensor>& inputs, std::chrono::nanoseconds timeout) {
  SLUICE_CHECK_KIND(kRuntime, impl_->session.valid(), "graph '{}': was compiled by a dry run; it cannot be called",
                    impl_->result.plan.name);
  std::vector<InputTensor> data;
  std::vector<Tensor> host;
  data.reserve(inputs.size());
  host.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    SLUICE_CHECK_KIND(kType, input.defined(), "graph '{}': an input is undefined; pass a tensor",
                      impl_->result.plan.name);
    host.push_back(input.device().kind == DeviceKind::kCpu ? input : Tensor(impl_->eager.copy_to(input, {})));
    data.push_back({host.back().read("graph input"), host.back().spec()});
  }
  for (const auto& [name, variable] : impl_->sharded) variable.parts->before_step(variable.updated);
  const StepHandle step = impl_->session.submit(data, timeout);
  for (const auto& [name, variable] : impl_->sharded)
    if (variable.updated) variable.parts->step_submitted();
  for (const Tensor& variable : impl_->updated) eager_impl(variable).bump_version();
  std::vector<Tensor> outputs;
  const std::vector<plan::Output>& infos = impl_->result.plan.outputs;
  for (size_t i = 0; i < infos.size(); ++i) {
    const TensorSpec& spec = infos[i].view.spec;
    outputs.emplace_back(Value(std::make_shared<EagerImpl>(
        std::make_shared<StepOutput>(step, i, impl_->options.wait_timeout), TensorType{spec.dtype, spec.shape})));
  }
  return outputs;
}

void GraphSession::synchronize() { impl_->session.wait_all(impl_->options.wait_timeout); }
const CompileResult& GraphSession::compiled() const { return impl_->result; }
const CapturedGraph& GraphSession::captured() const { return impl_->captured; }
Session& GraphSession::session() { return impl_->session; }

void GraphSession::save(const std::string& dir) const {
  Bundle bundle;
  bundle.plan = impl_->result.plan;
  bundle.graph_text = graph::to_text(impl_->captured.graph);
  bundle.meta = impl_->options.meta;
  for (const graph::Node& node : impl_->captured.graph.nodes())
    if (!node.op->extension.empty()) bundle.meta[extension_key(node.op->name)] = node.op->extension;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    const auto copy = impl_->eager.allocate(tensor.type());
    tensor.copy_to_host(copy->data());
    bundle.weights[name] = {TensorSpec::contiguous(tensor.type()), copy->storage()};
  };
  const ExecutorScope now(impl_->eager);
  for (const auto& [name, tensor] : impl_->captured.variables) add(name, tensor);
  for (const auto& [name, tensor] : impl_->folded) add(name, tensor);
  save_bundle(dir, bundle);
}

std::unique_ptr<GraphSession> GraphSession::load(EagerExecutor& eager, const std::string& dir,
                                                 GraphSessionOptions options) {
  Bundle bundle = load_bundle(dir);
  const OpRegistry& ops = eager.ops();
  check_extensions(dir, bundle.meta, [&](const std::string& op) { return ops.find(op) != nullptr; });
  CapturedGraph captured{graph::parse(bundle.graph_text, dir + "/graph.txt", ops), {}};
  for (auto& [name, weight] : bundle.weights)
    captured.variables[name] = Value(std::make_shared<EagerImpl>(weight.storage, weight.spec, DeviceId{}));
  for (const auto& [key, value] : bundle.meta) options.meta.emplace(key, value);
  auto impl = std::make_unique<Impl>(eager, std::move(captured), std::move(options));
  const KernelTarget target(eager.engine().kernels(),
                            devices_of(eager.engine(), impl->captured.graph, impl->options.compile));
  // The parts of variables are not kept: what lies on several devices is split anew.
  if (target.fingerprint() == bundle.plan.target && !compiler::is_global(impl->captured.graph)) {
    graph::check_kernels(bundle.plan, ops);  // kernels trust the types of their operands
    impl->result.plan = std::move(bundle.plan);
    impl->result.graph = impl->captured.graph;
  } else {
    impl->compile_graph();
  }
  impl->start();
  return std::unique_ptr<GraphSession>(new GraphSession(std::move(impl)));
}

}  // namespace sluice
