#include "runtime/session/ports.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

// Puts a further shard of the same whole beside those the port has.
void extend(const plan::Plan& plan, Ports::Input& port, plan::Shard shard) {
  Shape& whole = port.info.type.shape;
  const Shape& part = shard.type.shape;
  const plan::Shard& first = port.shards.front();
  bool fits =
      shard.cuts.size() == first.cuts.size() && shard.type.dtype == port.info.type.dtype && part.rank() == whole.rank();
  std::vector<bool> cut(kMaxRank, false);
  for (size_t c = 0; fits && c < shard.cuts.size(); ++c) {
    fits = shard.cuts[c].axis == first.cuts[c].axis && shard.cuts[c].axis < part.rank();
    if (!fits) break;
    shard.cuts[c].start -= first.cuts[c].start;
    cut[static_cast<size_t>(shard.cuts[c].axis)] = true;
  }
  const bool again = fits && std::any_of(port.shards.begin(), port.shards.end(), [&](const plan::Shard& known) {
                       bool same = known.type == shard.type;
                       for (const plan::Shard::Cut& c : shard.cuts)
                         same = same && known.start(c.axis) - (&known == &first ? first.start(c.axis) : 0) == c.start;
                       return same;
                     });
  // A part begins where those before it end, or beside one of them.
  for (int d = 0; fits && !again && d < whole.rank(); ++d) {
    const int64_t start = shard.start(d);
    fits = cut[static_cast<size_t>(d)] ? start >= 0 && start <= whole[d] : part[d] == whole[d];
    if (fits && shard.cuts.size() == 1 && cut[static_cast<size_t>(d)]) fits = start == whole[d];
    if (fits) whole[d] = std::max(whole[d], start + part[d]);
  }
  SLUICE_CHECK(fits, "plan '{}': input {}: it does not fit to '{}'; shards are copies, or parts in order", plan.name,
               shard.str(), first.name);
  port.shards.push_back(std::move(shard));
}

// A step has the rows of `parts` firings. verify() has checked each shard, but not all shards together.
void times_rows(const plan::Plan& plan, PortInfo& port, int64_t parts) {
  Shape& shape = port.type.shape;
  if (shape.rank() == 0) return;
  SLUICE_CHECK(!__builtin_mul_overflow(shape[0], parts, &shape[0]), "plan '{}': '{}': {} firings of {}; too large",
               plan.name, port.name, parts, port.type.str());
}

}  // namespace

std::vector<plan::NamedType> named_outputs(const plan::Plan& plan, const plan::Shards& shards) {
  std::vector<plan::NamedType> outputs = plan::named_outputs(plan);
  for (plan::NamedType& output : outputs)
    if (const plan::Shard* known = plan::find_shard(shards.outputs, output.name)) output.name = known->whole;
  return outputs;
}

void check_argument(const std::string& graph, const std::string& name, const TensorType& expected,
                    const TensorSpec& got) {
  SLUICE_CHECK(got.shape == expected.shape,
               "graph '{}': argument '{}' has shape {}; expected {}, as when the graph was compiled", graph, name,
               got.shape.str(), expected.shape.str());
  SLUICE_CHECK_KIND(kType, got.dtype == expected.dtype,
                    "graph '{}': argument '{}' has dtype {}; expected {}, as when the graph was compiled", graph, name,
                    dtype_name(got.dtype), dtype_name(expected.dtype));
}

int64_t firings_per_step(const plan::FiringCounts& counts, int sink) {
  return std::max<int64_t>(1, static_cast<int64_t>(counts.per_period(sink) / counts.period()));
}

Ports ports_of(const plan::Plan& plan, const plan::FiringCounts& counts, const plan::Shards& shards) {
  const plan::Adjacency adjacency(plan);
  Ports ports;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const plan::Input& input = plan.inputs[i];
    const TensorType type{input.spec.dtype, input.spec.shape};
    const plan::Shard* known = plan::find_shard(shards.inputs, input.name);
    plan::Shard shard = known != nullptr ? *known : plan::Shard{input.name, input.name, {}, {}};
    shard.type = type;
    const auto port = std::find_if(ports.inputs.begin(), ports.inputs.end(), [&](const Ports::Input& p) {
      return known != nullptr && p.info.name == shard.whole;
    });
    if (port != ports.inputs.end()) {
      port->of_plan.push_back(static_cast<int>(i));
      extend(plan, *port, std::move(shard));
    } else {
      ports.inputs.push_back({{shard.whole, type}, {static_cast<int>(i)}, {std::move(shard)}});
    }
  }
  for (Ports::Input& port : ports.inputs) {
    for (plan::Shard::Cut& cut : port.shards.front().cuts) cut.start = 0;  // what this process has begins here
    port.parts = plan.actors[plan.registers[plan.inputs[port.of_plan.front()].reg].producer].starts;
    for (const int i : port.of_plan) {
      const int starts = plan.actors[plan.registers[plan.inputs[i].reg].producer].starts;
      SLUICE_CHECK(starts == port.parts,
                   "plan '{}': input '{}': a step is {} firings of one of its feeds and {} of another", plan.name,
                   port.info.name, port.parts, starts);
    }
    times_rows(plan, port.info, port.parts);
  }
  const std::vector<plan::NamedType> outputs = named_outputs(plan, shards);
  const std::vector<plan::ResultExtent> extents = plan::result_extents(outputs);
  for (const plan::Output& output : plan.outputs) {
    const auto o = ports.output_of.size();
    const std::string& name = outputs[o].name;
    if (output.extent_of) {
      ports.output_of.push_back(-1);
      continue;
    }
    const plan::Shard* known = plan::find_shard(shards.outputs, output.name);
    SLUICE_CHECK_KIND(kUnsupported, known == nullptr || known->cuts.empty(),
                      "plan '{}': output {}: it is a part; outputs must be whole", plan.name, known->str());
    const bool told = known != nullptr && std::any_of(ports.outputs.begin(), ports.outputs.end(),
                                                      [&](const PortInfo& port) { return port.name == name; });
    ports.output_of.push_back(told ? -1 : static_cast<int>(ports.outputs.size()));
    if (told) continue;
    ports.outputs.push_back({name, {output.view.spec.dtype, output.view.spec.shape}});
    for (const int e : adjacency.register_edges[output.view.index]) {
      const int sink = plan.edges[e].consumer;
      if (plan.actors[sink].role == plan::ActorRole::kSink)
        times_rows(plan, ports.outputs.back(), firings_per_step(counts, sink));
    }
  }
  std::vector<Ports::Varying> varying;
  for (const plan::ResultExtent& e : extents) {
    const int port = ports.output_of[static_cast<size_t>(e.output)];
    if (port < 0) continue;  // a copy of one that is told already
    const TensorType &all = ports.outputs[static_cast<size_t>(port)].type,
                     &once = outputs[static_cast<size_t>(e.output)].type;
    SLUICE_CHECK_KIND(
        kUnsupported, all == once,
        "plan '{}': output '{}': a step has {}, of several firings that give {}; what varies in length, as "
        "its axis {} does, must be given once",
        plan.name, outputs[static_cast<size_t>(e.output)].name, all.str(), once.str(), e.axis);
    varying.push_back({port, e.axis, e.dim, e.extent});
  }
  if (!varying.empty()) ports.varying = std::make_shared<const std::vector<Ports::Varying>>(std::move(varying));
  return ports;
}

}  // namespace sluice
