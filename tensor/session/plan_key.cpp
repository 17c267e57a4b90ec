#include "tensor/session/plan_key.h"

#include <algorithm>
#include <cstdlib>

#include "base/build_id.h"
#include "base/files/sha256.h"
#include "base/key.h"
#include "compiler/sbp_infer.h"
#include "kernels/libraries.h"

namespace sluice {
namespace {

bool is_built_in(const graph::Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const graph::Node& node) { return node.op->extension.empty(); });
}

}  // namespace

bool has_plan_key(const graph::Graph& graph, const plan::Target& target, const CompileOptions& options) {
  const char* dump = std::getenv("SLUICE_DUMP_IR");
  if (!options.dump_dir.empty() || (dump != nullptr && *dump != '\0') || !options.until.empty()) return false;
  if (!options.backend.empty()) return false;  // another build of the library may take other nodes
  if (options.kernel_trials) return false;     // it depends on what is measured; the choices themselves are kept
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
