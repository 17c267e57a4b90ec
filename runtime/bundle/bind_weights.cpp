// Weights of a bundle become the storages a session runs on.
#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/kernel.h"
#include "plan/pack/ledger.h"
#include "runtime/bundle/bundle.h"
#include "runtime/bundle/bundle_source.h"
#include "runtime/bundle/moved_data.h"
#include "runtime/extension.h"
#include "runtime/session/engine.h"
#include "runtime/session/load_ranks.h"
#include "runtime/session/strided_copy.h"
#include "streams/stream.h"

namespace sluice {
namespace {

constinit std::atomic<PlanCheck> plan_check = nullptr;

// A tensor that load_bundle() read for this engine serves as it is, when the plan keeps it contiguous on the host. A
// variable that a step writes has memory of its own, which the ledger counts, rather than pages that are copied on the
// way, or a caller's.
bool serves(const BundleTensor& tensor, const plan::Variable& variable, const plan::Space& space, uint64_t bytes,
            bool written) {
  return space.kind == plan::SpaceKind::kHost && tensor.spec.strides == variable.spec.strides &&
         tensor.storage->bytes() >= bytes &&
         reinterpret_cast<uintptr_t>(tensor.storage->data()) % plan::kAlignment == 0 &&
         !(written && !tensor.storage->owned());
}

VariableBindings bind_each(Engine& engine, const plan::Plan& plan, const std::map<std::string, BundleTensor>& weights,
                           const plan::ShardsByName& shards, bool given_up) {
  VariableBindings bindings;
  const std::vector<bool> written = plan::written_variables(plan);
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const plan::Variable& variable = plan.variables[v];
    const TensorType type{variable.spec.dtype, variable.spec.shape};
    const plan::Shard* shard = plan::find_shard(shards, variable.name);
    const auto it = weights.find(shard != nullptr ? shard->whole : variable.name);
    SLUICE_CHECK(it != weights.end(), "bundle: plan '{}' needs variable '{}' ({}); the weights have none of that name",
                 plan.name, variable.name, type.str());
    const BundleTensor& tensor = it->second;
    SLUICE_CHECK(tensor.spec.dtype == type.dtype && (shard != nullptr || tensor.spec.shape == type.shape),
                 "bundle: variable '{}' is {} in the weights; the plan needs {}", variable.name,
                 TensorType{tensor.spec.dtype, tensor.spec.shape}.str(), type.str());
    const plan::Window window = shard != nullptr ? plan::window_of(*shard, tensor.spec) : plan::Window{0, tensor.spec};
    const std::byte* content = static_cast<const std::byte*>(tensor.storage->data()) + window.offset;
    const plan::Space& space = plan.spaces[variable.space];
    const uint64_t bytes = align_up(variable.spec.extent_bytes(), plan::kAlignment);
    if (given_up && shard == nullptr && serves(tensor, variable, space, bytes, written[v])) {
      bindings[variable.name] = tensor.storage;
      continue;
    }
    const auto storage = std::make_shared<Storage>(engine.allocator(space), bytes, space);
    if (space.kind != plan::SpaceKind::kDevice) {
      strided_copy(storage->data(), variable.spec, content, window.spec);
    } else {
      std::vector<std::byte> staged(bytes);
      strided_copy(staged.data(), variable.spec, content, window.spec);
      engine.device(space.device).copy_from_host(storage->data(), staged.data(), bytes);
    }
    tensor.storage->check().throw_if_error();
    bindings[variable.name] = storage;
  }
  return bindings;
}

// Sessions that only read a variable need its bytes once.
void share_constants(Engine& engine, const plan::Plan& plan, VariableBindings& bindings) {
  const std::vector<bool> shared = plan::shared_variables(plan);
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const plan::Variable& variable = plan.variables[v];
    if (!shared[v]) continue;
    std::shared_ptr<Storage>& storage = bindings.at(variable.name);
    storage = engine.share(variable.name, std::move(storage), variable.spec.extent_bytes());
  }
}

// Tells the kernels that open files.
void find_files_at(plan::Plan& plan, const DataRoots& roots) {
  bool any = false;
  for (plan::Kernel& kernel : plan.kernels) {
    if (kernel.op != "decode_image" && kernel.op != "decode_jpeg") continue;
    roots.put_into(kernel.attrs);
    any = true;
  }
  SLUICE_CHECK(any, "data_roots: plan '{}' opens no files; must be none", plan.name);
}

}  // namespace

VariableBindings bind_weights(Engine& engine, const plan::Plan& plan,
                              const std::map<std::string, BundleTensor>& weights, const plan::ShardsByName& shards) {
  return bind_each(engine, plan, weights, shards, false);
}

VariableBindings bind_weights(Engine& engine, const plan::Plan& plan, std::map<std::string, BundleTensor>&& weights,
                              const plan::ShardsByName& shards) {
  return bind_each(engine, plan, weights, shards, true);
}

void set_plan_check(PlanCheck check) { plan_check = check; }

Session load_session(Engine& engine, const BundleSource& source, SessionOptions options, const Weights& given) {
  // Straight into the engine's memory, so that weights are never held twice.
  return load_session(engine, load_bundle(source, engine.allocator({}), given), source.name(), std::move(options));
}

Session load_session(Engine& engine, Bundle bundle, const std::string& directory, SessionOptions options,
                     BoundWeights* bound) {
  return load_session(engine, std::move(bundle), directory, std::move(options), DataRoots(), bound);
}

Session load_session(Engine& engine, Bundle bundle, const std::string& directory, SessionOptions options,
                     const DataRoots& roots, BoundWeights* bound) {
  check_extensions(directory, bundle.meta, [&](const std::string& op) {
    return engine.kernels().find(op, DeviceKind::kCpu) != nullptr ||
           std::none_of(bundle.plan.kernels.begin(), bundle.plan.kernels.end(),
                        [&](const plan::Kernel& kernel) { return kernel.op == op; });
  });
  const plan::Plan here = about_file(directory, kPlanFile, [&] {
    if (const PlanCheck check = plan_check) check(bundle.plan);
    if (!roots.empty()) find_files_at(bundle.plan, roots);  // after the check: no op has such an attribute
    return plan_here(engine, bundle.plan);
  });
  std::map<std::string, const Storage*> sources;
  for (const auto& [name, weight] : bundle.weights) sources[name] = weight.storage.get();
  VariableBindings bindings = about_file(directory, kWeightsFile, [&] {
    return bind_weights(engine, here, std::move(bundle.weights), bundle.shards.variables);
  });
  bundle.weights.clear();
  for (const plan::Variable& variable : here.variables) {
    const auto source = sources.find(variable.name);
    if (bound == nullptr || source == sources.end()) continue;
    std::shared_ptr<Storage>& storage = bindings.at(variable.name);
    storage = bound->try_emplace({source->second, here.spaces[variable.space].str()}, storage).first->second;
  }
  share_constants(engine, here, bindings);
  options.shards = std::move(bundle.shards);
  return about_file(directory, kPlanFile,
                    [&] { return Session::load(engine, std::move(bundle.plan), bindings, std::move(options)); });
}

}  // namespace sluice
