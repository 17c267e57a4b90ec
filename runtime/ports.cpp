#include "runtime/ports.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

// Puts a further shard of the same whole beside those the port has.
void extend(const plan::Plan& plan, Ports::Input& port, plan::Shard shard) {
  Shape &whole = port.info.type.shape, rest = shard.type.shape;
  const plan::Shard& first = port.shards.front();
  bool fits = shard.axis == first.axis && shard.type.dtype == port.info.type.dtype && rest.rank() == whole.rank();
  if (fits && shard.axis >= 0) {
    shard.start -= first.start;
    fits = shard.start == whole[shard.axis];
    whole[shard.axis] += rest[shard.axis];
    rest[shard.axis] = whole[shard.axis];
  }
  SLUICE_CHECK(fits && rest == whole,
               "plan '{}': input {}: it does not fit to '{}'; shards are copies, or parts in order", plan.name,
               shard.str(), first.name);
  port.shards.push_back(std::move(shard));
}

}  // namespace

Ports ports_of(const plan::Plan& plan, const plan::Shards& shards) {
  Ports ports;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const plan::Input& input = plan.inputs[i];
    const TensorType type{input.spec.dtype, input.spec.shape};
    const plan::Shard* known = plan::find_shard(shards.inputs, input.name);
    plan::Shard shard = known != nullptr ? *known : plan::Shard{input.name, input.name, {}, {}, -1, 0};
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
    port.shards.front().start = 0;  // what this process has begins here
    Shape& shape = port.info.type.shape;
    if (shape.rank() == 0) continue;
    SLUICE_CHECK(!__builtin_mul_overflow(shape[0], int64_t{plan.micro_batches}, &shape[0]),
                 "plan '{}': input '{}': {} micro-batches of {}; too large", plan.name, port.info.name,
                 plan.micro_batches, port.info.type.str());  // of all shards; verify() knows of one
  }
  for (const plan::Output& output : plan.outputs) {
    const plan::Shard* known = plan::find_shard(shards.outputs, output.name);
    const std::string& name = known != nullptr ? known->whole : output.name;
    SLUICE_CHECK_KIND(kUnsupported, known == nullptr || known->axis < 0,
                      "plan '{}': output {}: it is a part; outputs must be whole", plan.name, known->str());
    const bool told = known != nullptr && std::any_of(ports.outputs.begin(), ports.outputs.end(),
                                                      [&](const PortInfo& port) { return port.name == name; });
    ports.output_of.push_back(told ? -1 : static_cast<int>(ports.outputs.size()));
    if (!told) ports.outputs.push_back({name, {output.view.spec.dtype, output.view.spec.shape}});
  }
  return ports;
}

}  // namespace sluice
