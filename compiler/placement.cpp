// Device and stream of every node.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/fix.h"
#include "compiler/collectives.h"
#include "compiler/lowered.h"
#include "compiler/pass.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using plan::StreamKind;

std::string at(const graph::Node& node) { return node.source.known() ? fmt::format("  ({})", node.source.str()) : ""; }

// What puts the calls of this line somewhere else.
Fix elsewhere(const graph::Node& node, const char* field, const std::string& where) {
  if (!node.source.known()) return {};
  return {{"call", std::string(node.op->name)}, {"line", node.source.str()}, {field, where}};
}

// The index of "kind" (0) or "kind:N"; -1 when it is neither.
int stream_index(std::string_view stream, std::string_view kind) {
  if (stream == kind) return 0;
  if (!stream.starts_with(kind) || !stream.substr(kind.size()).starts_with(":")) return -1;
  const std::string_view digits = stream.substr(kind.size() + 1);
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return error == std::errc() && end == digits.data() + digits.size() && index < 1024 ? index : -1;
}

}  // namespace

Placer::Placer(const graph::Graph& graph, const plan::Target& target, const CompileOptions& options)
    : graph_(graph), target_(target), options_(options), devices_(target.devices()) {
  desc(options.device);
  for (const graph::Node& node : graph.nodes()) node_stream_.push_back(place(node));
}

const plan::DeviceDesc& Placer::desc(const DeviceId& device) const {
  std::string known;
  for (const plan::DeviceDesc& d : devices_) {
    if (d.device == device) return d;
    known += (known.empty() ? "" : ", ") + d.device.str();
  }
  throw FixableError(ErrorKind::kValue, fmt::format("device {}: not there; the target has {}", device.str(), known),
                     {{"option", std::string("device")}, {"value", devices_.empty() ? "" : devices_[0].device.str()}});
}

int Placer::place(const graph::Node& node) {
  const DeviceId device = node.placement.device.value_or(options_.device);
  if (is_collective(*node.op)) {
    const bool own = device.kind != DeviceKind::kCpu && target_.has_kernel(node.op->name, device.kind);
    return stream(own ? device : DeviceId{device.rank, DeviceKind::kCpu, 0}, StreamKind::kCollective, 0);
  }
  const std::string& name = node.placement.stream;
  const int compute = name.empty() ? 0 : stream_index(name, "compute");
  if (compute >= 0) {
    try {
      desc(device);
    } catch (const Error& error) {
      throw FixableError(error.kind(), fmt::format("op {}: {}{}", node.op->name, error.what(), at(node)),
                         elsewhere(node, "device", devices_[0].device.str()));
    }
    return stream(device, StreamKind::kCompute, compute);
  }
  const int host = stream_index(name, "host");
  if (host < 0) {
    throw FixableError(
        ErrorKind::kValue,
        fmt::format("op {}: unknown stream: \"{}\"; must be \"compute\", \"compute:N\", \"host\" or \"host:N\"{}",
                    node.op->name, name, at(node)),
        elsewhere(node, "stream", name.starts_with("h") ? "host" : "compute"));
  }
  return stream({device.rank, DeviceKind::kCpu, 0}, StreamKind::kHost, host);
}

int Placer::home_of(int node) {
  const graph::Node& n = graph_.nodes()[node];
  return is_collective(*n.op) ? stream(*n.placement.device, StreamKind::kCompute, 0) : node_stream_[node];
}

int Placer::default_stream(int rank) {
  return stream({rank, options_.device.kind, options_.device.index}, StreamKind::kCompute, 0);
}

int Placer::stream(const DeviceId& device, StreamKind kind, int index) {
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].device == device && streams[i].kind == kind && streams[i].index == index) return static_cast<int>(i);
  }
  streams.push_back(
      {fmt::format("{}/{}{}", device.str(), plan::stream_kind_name(kind), index), device, kind, index, 1});
  return static_cast<int>(streams.size()) - 1;
}

int Placer::space(const plan::Space& space) {
  const auto it = std::find(spaces.begin(), spaces.end(), space);
  if (it != spaces.end()) return static_cast<int>(it - spaces.begin());
  spaces.push_back(space);
  return static_cast<int>(spaces.size()) - 1;
}

int Placer::space_of(int stream) {
  const DeviceId device = streams[stream].device;
  return desc(device).host_memory ? host_space(device.rank) : space({plan::SpaceKind::kDevice, device});
}

void Placer::assign_cores() {
  std::map<DeviceId, int> hosts, computing;  // streams by device; those that have no nodes only feed and collect
  const std::set<int> used(node_stream_.begin(), node_stream_.end());
  for (size_t i = 0; i < streams.size(); ++i) {
    const plan::Stream& s = streams[i];
    if (s.kind == StreamKind::kHost) ++hosts[s.device];
    if (s.kind == StreamKind::kCompute && used.contains(static_cast<int>(i))) ++computing[s.device];
  }
  for (plan::Stream& s : streams) {
    if (s.kind != StreamKind::kCompute) continue;
    const int left = desc(s.device).cores - (s.device.kind == DeviceKind::kCpu ? hosts[s.device] : 0);
    s.cores = std::max(1, options_.cores > 0 ? options_.cores : left / std::max(1, computing[s.device]));
  }
}

void Placer::place_state_updates() {
  const int num_nodes = static_cast<int>(graph_.nodes().size());
  const auto is_state = [&](graph::ValueId value, const std::vector<bool>& only_state) {
    const graph::ValueInfo& info = graph_.values()[value];
    if (info.kind == graph::ValueKind::kVariable) return true;
    return info.kind == graph::ValueKind::kNode && only_state[info.index];
  };
  // Forwards: computed from variables alone. Backwards: read by such nodes and updates alone.
  std::vector<bool> only_state(num_nodes, false);
  for (int i = 0; i < num_nodes; ++i) {
    const graph::Node& node = graph_.nodes()[i];
    only_state[i] = node.placement == graph::Placement{} && !node.op->effectful;
    for (graph::ValueId input : node.inputs) {
      if (input != kNoValue) only_state[i] = only_state[i] && is_state(input, only_state);
    }
  }
  const auto used_elsewhere = [&](graph::ValueId value) {
    const graph::ValueInfo& info = graph_.values()[value];
    if (info.kind == graph::ValueKind::kNode) only_state[info.index] = false;
  };
  for (const graph::Output& output : graph_.outputs()) used_elsewhere(output.value);
  for (int i = num_nodes - 1; i >= 0; --i) {
    if (only_state[i]) continue;
    for (graph::ValueId input : graph_.nodes()[i].inputs) {
      if (input != kNoValue) used_elsewhere(input);
    }
  }
  // The first other reader of a variable says where its state is kept; what follows from it stays there.
  std::vector<int> home(graph_.values().size(), -1);
  for (int i = 0; i < num_nodes; ++i) {
    if (only_state[i]) continue;
    for (graph::ValueId input : graph_.nodes()[i].inputs) {
      if (input == kNoValue || home[input] >= 0) continue;
      const graph::ValueInfo& info = graph_.values()[input];
      if (info.kind == graph::ValueKind::kVariable && !graph_.variables()[info.index].constant) {
        home[input] = node_stream_[i];
      }
    }
  }
  for (int i = 0; i < num_nodes; ++i) {
    if (!only_state[i]) continue;
    const graph::Node& node = graph_.nodes()[i];
    for (graph::ValueId input : node.inputs) {
      if (input == kNoValue || home[input] < 0) continue;
      node_stream_[i] = home[input];
      break;
    }
    for (graph::ValueId output : node.outputs) home[output] = node_stream_[i];
    for (graph::ValueId input : node.inputs) {  // numbers made from nothing: where they are used
      if (input == kNoValue || graph_.values()[input].kind != graph::ValueKind::kNode) continue;
      const int made_by = graph_.values()[input].index;
      if (only_state[made_by] && graph_.nodes()[made_by].inputs.empty()) node_stream_[made_by] = node_stream_[i];
    }
  }
}

}  // namespace sluice::compiler
