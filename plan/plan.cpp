#include "plan/plan.h"

#include <algorithm>

namespace sluice::plan {

const char* stream_kind_name(StreamKind kind) {
  switch (kind) {
    case StreamKind::kCompute: return "compute";
    case StreamKind::kHost: return "host";
    case StreamKind::kCopyIn: return "copy_in";
    case StreamKind::kCopyOut: return "copy_out";
    case StreamKind::kCollective: return "collective";
  }
  return "?";
}

const char* space_kind_name(SpaceKind kind) {
  switch (kind) {
    case SpaceKind::kHost: return "host";
    case SpaceKind::kPinned: return "pinned";
    case SpaceKind::kDevice: return "device";
  }
  return "?";
}

const char* actor_role_name(ActorRole role) {
  switch (role) {
    case ActorRole::kNormal: return "normal";
    case ActorRole::kSource: return "source";
    case ActorRole::kFeed: return "feed";
    case ActorRole::kSink: return "sink";
  }
  return "?";
}

const char* base_kind_name(BaseKind kind) {
  switch (kind) {
    case BaseKind::kBuffer: return "buffer";
    case BaseKind::kRegister: return "register";
    case BaseKind::kVariable: return "variable";
  }
  return "?";
}

const char* instr_kind_name(InstrKind kind) {
  switch (kind) {
    case InstrKind::kRun: return "run";
    case InstrKind::kEmit: return "emit";
    case InstrKind::kRelease: return "release";
  }
  return "?";
}

std::string Space::str() const {
  if (kind == SpaceKind::kDevice) return device.str();
  if (kind == SpaceKind::kPinned) return "pinned:" + device.str();
  return device.rank == 0 ? space_kind_name(kind) : fmt::format("{}/{}", device.rank, space_kind_name(kind));
}

int packed_copy(Plan& plan, int variable, const std::string& format, uint64_t bytes,
                const std::optional<Derivation>& derived) {
  std::string name = plan.variables[variable].name;
  if (derived) name += "/" + derived->op;
  if (!format.empty()) name += "/packed";
  const auto same_kind = [&](const PackedCopy& p) {
    return p.variable == variable && p.format.empty() == format.empty() &&
           p.derived.has_value() == derived.has_value() && (!derived || p.derived->op == derived->op);
  };
  int others = 1;
  for (size_t p = 0; p < plan.packed.size(); ++p) {
    if (!same_kind(plan.packed[p])) continue;
    if (plan.packed[p].format == format && plan.packed[p].derived == derived) return static_cast<int>(p);
    ++others;
  }
  if (others > 1) name += fmt::format("#{}", others);
  plan.packed.push_back({std::move(name), variable, format, bytes, derived});
  return static_cast<int>(plan.packed.size()) - 1;
}

int derived_copy(Plan& plan, const Derivation& derived) {
  const auto first = std::find_if(derived.inputs.begin(), derived.inputs.end(), [](int v) { return v >= 0; });
  return packed_copy(plan, *first, "", std::max<uint64_t>(derived.spec.extent_bytes(), 1), derived);
}

std::vector<int> sources_of(const PackedCopy& copy) {
  if (!copy.derived) return {copy.variable};
  std::vector<int> sources;
  for (const int v : copy.derived->inputs)
    if (v >= 0) sources.push_back(v);
  return sources;
}

std::string derivation_str(const Plan& plan, const PackedCopy& copy) {
  if (!copy.derived) return "";
  std::vector<std::string> names, attrs;
  for (const int v : copy.derived->inputs) names.push_back(v < 0 ? "none" : plan.variables[v].name);
  for (const auto& [name, attr] : copy.derived->attrs) attrs.push_back(name + " = " + attr_str(attr));
  return fmt::format("{}({}) {{{}}}", copy.derived->op, fmt::join(names, ", "), fmt::join(attrs, ", "));
}

namespace {

// The variables of the views that `is_meant` is true of; indices out of range are left out, as verify() reports them.
template <class Is>
std::vector<bool> variables_of(const Plan& plan, std::vector<View> Kernel::*views, Is is_meant) {
  std::vector<bool> meant(plan.variables.size());
  for (const Kernel& kernel : plan.kernels) {
    for (const View& view : kernel.*views) {
      const bool variable = view.base == BaseKind::kVariable && static_cast<size_t>(view.index) < meant.size();
      if (variable && is_meant(view)) meant[view.index] = true;
    }
  }
  return meant;
}

}  // namespace

std::vector<bool> written_variables(const Plan& plan) {
  return variables_of(plan, &Kernel::outputs, [](const View&) { return true; });
}

std::vector<bool> read_plain(const Plan& plan) {
  return variables_of(plan, &Kernel::inputs, [](const View& view) { return view.packed < 0; });
}

Adjacency::Adjacency(const Plan& plan)
    : in_edges(plan.actors.size()), out_registers(plan.actors.size()), register_edges(plan.registers.size()) {
  // Indices out of range are left out: verify() reports them, and needs the rest.
  const int actors = static_cast<int>(plan.actors.size());
  const int registers = static_cast<int>(plan.registers.size());
  for (int r = 0; r < registers; ++r) {
    const int producer = plan.registers[r].producer;
    if (producer >= 0 && producer < actors) out_registers[producer].push_back(r);
  }
  for (int e = 0; e < static_cast<int>(plan.edges.size()); ++e) {
    const Edge& edge = plan.edges[e];
    if (edge.consumer >= 0 && edge.consumer < actors) in_edges[edge.consumer].push_back(e);
    if (edge.reg >= 0 && edge.reg < registers) register_edges[edge.reg].push_back(e);
  }
}

}  // namespace sluice::plan
