#include "plan/plan.h"

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
