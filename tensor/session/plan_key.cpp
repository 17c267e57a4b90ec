#include "tensor/session/plan_key.h"

#include <algorithm>
#include <cstdlib>

#include "base/build_id.h"
#include "base/files/sha256.h"
#include "base/key.h"
#include "compiler/sbp_infer.h"
#include "kernels/libraries.h"
#include "plan/time/machine.h"

namespace sluice {
namespace {

bool is_built_in(const graph::Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const graph::Node& node) { return node.op->extension.empty(); });
}

void add_map(Key& key, const auto& map, auto add) {
  key.add(map.size());
  for (const auto& [name, value] : map) {
    key.add(name);
    add(value);
  }
}
void add_texts(Key& key, const std::vector<std::string>& texts) {
  key.add(texts.size());
  for (const std::string& text : texts) key.add(text);
}
void add_contents(Key& key, const Pattern::Contents& contents) {
  add_map(key, contents, [&](const std::vector<std::byte>& bytes) {
    key.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  });
}

// Each option by its name here, so that a new one does not compile before it is part of the key.
void add_options(Key& key, const CompileOptions& options) {
  const auto& [name, device, devices, granularity, outputs_buffer_size, quotas, machine, fast_quotas, reuse_memory,
               packing, in_place, donated, any_order, device_ports, pack_weights, memory_budget, auto_memory,
               workspace_limit, generated_kernels, kernel_trials, cores, float32_matmul_precision,
               float32_conv_precision, deterministic_convs, deterministic_attention, disabled_passes, activations,
               keep_ops, updates, scaled_updates, fuse_add, cast_updates, prims, patterns, order, concurrency, ranks,
               components, stages, dump_dir, until] = options;
  key.add(name).add(device).add(devices.size());
  for (const DeviceId& each : devices) key.add(each);
  key.add(granularity).add(outputs_buffer_size).add(plan::to_json(machine));
  add_map(key, quotas, [&](int quota) { key.add(quota); });
  key.add(fast_quotas).add(reuse_memory).add(packing).add(in_place);
  add_texts(key, donated);
  add_texts(key, any_order);
  key.add(device_ports).add(pack_weights).add(memory_budget).add(auto_memory);
  key.add(workspace_limit).add(generated_kernels).add(kernel_trials).add(cores);
  key.add(float32_matmul_precision).add(float32_conv_precision).add(deterministic_convs).add(deterministic_attention);
  add_texts(key, disabled_passes);
  key.add(activations).add(keep_ops).add(updates).add(scaled_updates).add(fuse_add).add(cast_updates).add(prims);
  key.add(patterns.size());
  for (const Pattern& pattern : patterns) {
    key.add(pattern.name).add(graph::to_text(pattern.before)).add(graph::to_text(pattern.after));
    add_contents(key, pattern.before_constants);
    add_contents(key, pattern.after_constants);
  }
  key.add(order).add(concurrency).add(ranks);
  add_map(key, components, [&](const GlobalPlacement& placement) { key.add(placement.str()); });
  add_map(key, stages, [&](int stage) { key.add(stage); });
  key.add(dump_dir).add(until);
}

}  // namespace

bool has_plan_key(const graph::Graph& graph, const plan::Target& target, const CompileOptions& options) {
  const char* dump = std::getenv("SLUICE_DUMP_IR");
  if (!options.dump_dir.empty() || (dump != nullptr && *dump != '\0') || !options.until.empty()) return false;
  if (options.kernel_trials) return false;  // it depends on what is measured; the choices themselves are kept
  if (compiler::is_global(graph) || !is_built_in(graph) || build_id().empty()) return false;
  for (const plan::DeviceDesc& device : target.devices())
    if (device.device.kind != DeviceKind::kCpu && device.device.kind != DeviceKind::kSim) return false;
  return std::all_of(options.patterns.begin(), options.patterns.end(),
                     [](const Pattern& pattern) { return is_built_in(pattern.before) && is_built_in(pattern.after); });
}

std::string plan_key(const graph::Graph& graph, const plan::Target& target, const CompileOptions& options,
                     const ConstantLookup& constants) {
  Key key;
  key.add(std::string_view("plan")).add(graph::to_text(graph)).add(target.fingerprint());
  add_options(key, options);
  add_machine(key);
  for (const graph::Variable& v : graph.variables()) {
    const void* const data = v.constant && constants ? constants(v.name) : nullptr;
    if (data == nullptr) continue;
    const TensorType& type = graph.type(v.value);
    const uint64_t bytes = checked_bytes(type.shape, dtype_size(type.dtype));
    key.add(v.name).add(sha256_hex({static_cast<const char*>(data), bytes}));
  }
  return key.take();
}

}  // namespace sluice
