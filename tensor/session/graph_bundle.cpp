// Graphs to bundles, and back.
#include <cstring>
#include <set>

#include "base/log.h"
#include "compiler/sbp_infer.h"
#include "graph/kernel_check.h"
#include "kernels/target.h"
#include "plan/classes.h"
#include "plan/json/json.h"
#include "plan/moved.h"
#include "plan/ranks.h"
#include "runtime/extension.h"
#include "runtime/session/strided_copy.h"
#include "streams/collective/world.h"
#include "tensor/session/graph_session_impl.h"
#include "tensor/session/ranks_agree.h"

namespace sluice {
namespace {

graph::Graph graph_of(const Bundle& bundle, const std::string& dir, const OpRegistry& ops) {
  check_extensions(dir, bundle.meta, [&](const std::string& op) { return ops.find(op) != nullptr; });
  return about_file(dir, kGraphFile, [&] { return graph::parse(bundle.graph_text, dir + "/" + kGraphFile, ops); });
}

}  // namespace

BundleTensor GraphSession::Impl::whole_of(const std::string& name, const TensorType& type) {
  const Tensor tensor = find(name);
  if (!is_component(name)) {
    const auto copy = eager.allocate(type);
    tensor.copy_to_host(copy->data());
    return {TensorSpec::contiguous(type), copy->storage()};
  }
  const int rank = world->rank();
  const BundleTensor whole{TensorSpec::contiguous(type), rank == 0 ? eager.allocate(type)->storage() : nullptr};
  for (const plan::Shard& shard : result.partition.shards) {
    if (shard.whole != name) continue;
    const TensorSpec spec = TensorSpec::contiguous(shard.type);
    std::vector<std::byte> part(spec.extent_bytes());
    if (rank == shard.device.rank) {
      EagerImpl& impl = eager_impl(tensor);
      impl.storage()->before_read();
      strided_copy(part.data(), spec, impl.data(), impl.memory_spec());
      if (rank != 0) world->control().send(part.data(), part.size(), 0, 0);
    }
    if (rank == 0) {
      if (shard.device.rank != 0) world->control().receive(part.data(), part.size(), shard.device.rank, 0);
      const plan::Window window = plan::window_of(shard, whole.spec);
      strided_copy(static_cast<std::byte*>(whole.storage->data()) + window.offset, window.spec, part.data(), spec);
    }
    if (shard.cuts.empty()) break;  // copies are equal
  }
  return whole;
}

Bundle GraphSession::without_weights() const {
  Impl& impl = *impl_;
  const std::string& name = impl.result.plan.name;
  for (const auto& [input, component] : impl.options.compile.components) {
    SLUICE_CHECK_KIND(kUnsupported, impl.world == nullptr || !component.sbp.any(Sbp::Kind::kPartialSum),
                      "graph '{}': '{}' lies as {}; what a bundle is fed must be whole, or split", name, input,
                      component.str());
  }
  SLUICE_CHECK_KIND(kUnsupported, !impl.half_copies.any(),
                    "graph '{}': has copies of parameters that only this process keeps up to date "
                    "(enable_fused_model_update_cast); save a graph without them",
                    name);
  SLUICE_CHECK_KIND(kUnsupported, !plan::classes_of(impl.result.plan),
                    "graph '{}': has the plan of one rank of each class; save a graph with enable_rank_classes(False)",
                    name);
  Bundle bundle;
  bundle.plan = impl.result.plan;
  bundle.shards = impl.shards;
  bundle.graph_text = graph::to_text(impl.captured.graph);
  bundle.meta = impl.options.meta;
  for (const graph::Node& node : impl.captured.graph.nodes())
    if (!node.op->extension.empty()) bundle.meta[extension_key(node.op->name)] = node.op->extension;
  return bundle;
}

Bundle GraphSession::bundle(BundledTensors* known) const {
  Impl& impl = *impl_;
  Bundle bundle = without_weights();
  const ExecutorScope now(impl.eager);
  std::map<std::string, TensorType> types;
  for (const auto* known : {&impl.captured.variables, &impl.folded})
    for (const auto& [variable, tensor] : *known) types[variable] = tensor.type();
  for (const graph::Variable& v : impl.captured.graph.variables()) types[v.name] = impl.captured.graph.type(v.value);
  for (const auto& [variable, type] : types) {
    const Tensor tensor = impl.find(variable);
    const auto same = known == nullptr ? BundledTensors::iterator() : known->find(tensor.impl());
    const bool found = known != nullptr && same != known->end();
    bundle.weights[variable] = found ? same->second : impl.whole_of(variable, type);
    if (known != nullptr && !found) known->emplace(tensor.impl(), bundle.weights[variable]);
  }
  return bundle;
}

void GraphSession::save(const std::string& dir) const {
  Impl& impl = *impl_;
  const Bundle bundle = this->bundle();
  if (impl.world == nullptr) return save_bundle(dir, bundle);
  std::string problem;
  try {
    if (impl.world->rank() == 0) save_bundle(dir, bundle);
  } catch (const Error& error) {
    problem = error.what();
  }
  problem = gather_texts(impl.world->control(), problem)[0];
  SLUICE_CHECK_KIND(kIo, problem.empty(), "graph '{}': rank 0 could not save it: {}", impl.result.plan.name, problem);
}

std::unique_ptr<GraphSession> GraphSession::exported(ExportOptions wanted) const {
  CapturedGraph captured = impl_->captured;
  GraphSessionOptions options = impl_->options;
  SLUICE_CHECK_KIND(kUnsupported, impl_->world == nullptr || !wanted.freeze,
                    "graph '{}': freeze: a plan of several ranks; save it without freeze", options.compile.name);
  if (wanted.outputs) captured.graph.keep_outputs(*wanted.outputs);
  if (wanted.freeze) captured.graph.freeze_variables();
  options.dry_run = true;
  options.compile.donated.clear();
  if (wanted.signature.empty())
    options.meta.erase("signature");
  else
    options.meta["signature"] = std::move(wanted.signature);
  auto session = std::make_unique<GraphSession>(impl_->eager, std::move(captured), std::move(options));
  session->impl_->keep_folded();
  return session;
}

void GraphSession::Impl::adopt(Bundle& bundle) {
  result.plan = std::move(bundle.plan);
  result.graph = captured.graph;
  shards = std::move(bundle.shards);
  for (const plan::Variable& v : result.plan.variables)
    if (const plan::Shard* shard = plan::find_shard(shards.variables, v.name))
      result.partition.shards.push_back(*shard);
  world = eager.engine().world();
  options.compile.ranks = plan::rank_count(result.plan);
  if (world != nullptr && (world->size() == 1 || options.compile.ranks == 1)) world = nullptr;
  if (world == nullptr) return;
  std::map<std::string, std::pair<std::vector<DeviceId>, NdSbp>> lies;  // by the graph's name, on rows of devices
  const auto add = [&](const plan::Shard* shard) {
    if (shard == nullptr) return;
    if (!shard->lies.empty()) {
      options.compile.components.insert_or_assign(shard->whole, parse_placement(shard->lies));
      return;
    }
    lies[shard->whole].first.push_back(shard->device);
    lies[shard->whole].second = shard->cuts.empty() ? Sbp::broadcast() : Sbp::split(shard->cuts[0].axis);
  };
  for (const plan::Input& input : result.plan.inputs) {
    // Copies are taken from local tensors, too.
    const plan::Shard* shard = plan::find_shard(shards.inputs, input.name);
    if (shard != nullptr && !shard->cuts.empty()) add(shard);
  }
  for (const plan::Shard& shard : result.partition.shards) add(&shard);
  for (auto& [name, where] : lies)
    options.compile.components[name] = {DeviceMesh(std::move(where.first)), where.second};
  for (const plan::Shard& shard : result.partition.shards) {
    const auto whole = captured.variables.find(shard.whole);
    if (shard.device.rank != world->rank() || whole == captured.variables.end()) continue;
    const EagerImpl& from = eager_impl(whole->second);
    const plan::Window window = plan::window_of(shard, from.spec());
    const auto part = eager.allocate(shard.type);
    strided_copy(part->data(), TensorSpec::contiguous(shard.type), from.data() + window.offset, window.spec);
    whole->second = Value(part);
  }
}

std::unique_ptr<GraphSession> GraphSession::load(EagerExecutor& eager, const BundleSource& source,
                                                 GraphSessionOptions options) {
  return load(eager, load_bundle(source, make_host_allocator()), source.name(), std::move(options), nullptr);
}

std::unique_ptr<GraphSession> GraphSession::load(EagerExecutor& eager, Bundle bundle, const std::string& dir,
                                                 GraphSessionOptions options, LoadedTensors* loaded) {
  CapturedGraph captured{graph_of(bundle, dir, eager.ops()), {}};
  std::set<std::string> updated;
  for (const graph::Variable& v : captured.graph.variables())
    if (v.update != graph::kNoValue) updated.insert(v.name);
  for (auto& [name, weight] : bundle.weights) {
    const auto made = [&]() -> Value {
      // A variable that steps write has memory of its own, rather than pages that are copied on the way.
      if (weight.storage->file() == nullptr || !updated.contains(name))
        return Value(std::make_shared<EagerImpl>(weight.storage, weight.spec, DeviceId{}));
      const auto copy = eager.allocate({weight.spec.dtype, weight.spec.shape});
      std::memcpy(copy->data(), weight.storage->data(), weight.spec.extent_bytes());
      weight.storage->check().throw_if_error();
      return Value(copy);
    };
    if (loaded == nullptr) {
      captured.variables[name] = made();
    } else {
      const auto [tensor, fresh] = loaded->try_emplace(weight.storage.get());
      if (fresh) tensor->second = made();
      captured.variables[name] = tensor->second;
    }
  }
  return started(eager, std::move(captured), bundle, dir, std::move(options));
}

std::unique_ptr<GraphSession> GraphSession::started(EagerExecutor& eager, CapturedGraph captured, Bundle& bundle,
                                                    const std::string& dir, GraphSessionOptions options) {
  for (const auto& [key, value] : bundle.meta) options.meta.emplace(key, value);
  auto impl = std::make_unique<Impl>(eager, std::move(captured), std::move(options));
  // Bundles of old do not say where variables lie on several devices: they are split anew.
  const char* decides = kPlanFile;
  if (plan::rank_count(bundle.plan) == 1) {
    const std::string here = KernelTarget(eager.engine().kernels(), impl->devices()).fingerprint();
    if (compiler::is_global(impl->captured.graph) && bundle.shards.empty())
      impl->replanned = fmt::format("{}/{} does not say how its variables are divided", dir, kPlanFile);
    else if (here != bundle.plan.target)
      impl->replanned = fmt::format("{}/{} was made for '{}'; here is '{}'", dir, kPlanFile, bundle.plan.target, here);
  }
  // A foreign backend is asked now what it takes, whatever the plan was made for: one bundle serves all backends, and
  // none.
  const bool asks_backend = !impl->options.compile.backend.empty();
  if (impl->replanned.empty() && !asks_backend) {
    about_file(dir, kPlanFile, [&] {
      graph::check_kernels(bundle.plan, eager.ops());  // kernels trust the types of their operands
      impl->adopt(bundle);
    });
  } else {
    decides = kGraphFile;
    if (!impl->replanned.empty()) {
      impl->replanned += fmt::format(": compiled anew from {}", kGraphFile);
      log(LogLevel::kWarn, LogArea::kTensor, "{}", impl->replanned);
    }
    about_file(dir, kGraphFile, [&] { impl->compile_graph(); });
  }
  about_file(dir, decides, [&] { impl->start(); });
  return std::unique_ptr<GraphSession>(new GraphSession(std::move(impl)));
}

SavedPlan GraphSession::saved_plan() const {
  const Impl& impl = *impl_;
  SLUICE_CHECK_KIND(kUnsupported, impl.world == nullptr && !compiler::is_global(impl.captured.graph),
                    "graph '{}': its plan is for several devices, and goes with their parts of the weights; save it as "
                    "a bundle",
                    impl.result.plan.name);
  SavedPlan saved{bundle_texts(without_weights())};
  saved.variables = impl.captured.variables;
  for (const auto& [name, tensor] : impl.folded) saved.variables[name] = tensor;
  return saved;
}

std::unique_ptr<GraphSession> GraphSession::resume(EagerExecutor& eager, const SavedPlan& saved,
                                                   const std::string& name, GraphSessionOptions options) {
  Bundle bundle = bundle_of(saved.texts, name);
  CapturedGraph captured{graph_of(bundle, name, eager.ops()), {}};
  std::map<std::string, TensorType> types;  // of all that it needs
  for (const graph::Variable& v : captured.graph.variables()) types[v.name] = captured.graph.type(v.value);
  for (const plan::Variable& v : bundle.plan.variables) types.emplace(v.name, TensorType{v.spec.dtype, v.spec.shape});
  for (const auto& [variable, type] : types) {
    const auto found = saved.variables.find(variable);
    SLUICE_CHECK(found != saved.variables.end(), "{}: variable '{}' is not among what is given; every variable must be",
                 name, variable);
    SLUICE_CHECK(found->second.type() == type, "{}: variable '{}' is {} now; the plan was made for {}", name, variable,
                 found->second.type().str(), type.str());
    captured.variables[variable] = found->second;
  }
  return started(eager, std::move(captured), bundle, name, std::move(options));
}

SavedPlan moved_plan(SavedPlan saved, const std::string& name, const DeviceId& to, const OpRegistry& ops) {
  Bundle bundle = bundle_of(saved.texts, name);
  SLUICE_CHECK_KIND(kUnsupported, bundle.shards.empty(),
                    "{}: its plan is for several devices; one of one device can move", name);
  const DeviceId from = plan::device_of(bundle.plan);
  graph::Graph graph = graph_of(bundle, name, ops);
  for (graph::Node& node : graph.mutable_nodes())
    if (from != DeviceId{} && node.placement.device == from) node.placement.device = to;
  bundle.graph_text = graph::to_text(graph);
  if (from.kind == to.kind) plan::move_plan(bundle.plan, from, to);
  saved.texts = bundle_texts(bundle);
  return saved;
}

}  // namespace sluice
