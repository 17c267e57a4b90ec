// Looks at what callers give a step: inputs, and memory for results.
#include <algorithm>

#include "runtime/session/step_ports.h"

namespace sluice {
void StepPorts::check_inputs(std::span<const InputTensor> inputs) const {
  const std::vector<Ports::Input>& expected = ports_.inputs;
  SLUICE_CHECK(inputs.size() == expected.size(), "session '{}': got {} inputs; the plan takes {}", plan_.name,
               inputs.size(), expected.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PortInfo& port = expected[i].info;
    const TensorSpec& got = inputs[i].spec;
    check_argument(plan_.name, port.name, port.type, got);
    SLUICE_CHECK(got.strides.rank() == got.shape.rank(), "session '{}': input '{}': got {} strides; expected {}",
                 plan_.name, port.name, got.strides.rank(), got.shape.rank());
    SLUICE_CHECK(inputs[i].data != nullptr || numel(got.shape) == 0,
                 "session '{}': input '{}': got no data; expected {}", plan_.name, port.name, port.type.str());
    if (inputs[i].storage != nullptr) check_handed_over(i, inputs[i]);
  }
}

void StepPorts::check_handed_over(size_t index, const InputTensor& input) const {
  const PortInfo& port = ports_.inputs[index].info;
  const Storage& storage = *input.storage;
  const auto start = reinterpret_cast<uintptr_t>(input.data) - reinterpret_cast<uintptr_t>(storage.data());
  const uint64_t bytes = input.spec.extent_bytes();
  SLUICE_CHECK(bytes == 0 || (start <= storage.bytes() && bytes <= storage.bytes() - start),
               "session '{}': input '{}': {} bytes at {} of the {} handed over; it must lie within them", plan_.name,
               port.name, bytes, static_cast<int64_t>(start), storage.bytes());
  SLUICE_CHECK(storage.space().kind != plan::SpaceKind::kDevice || memory_.fits(index, input),
               "session '{}': input '{}': handed over in {}; it must lie in {}", plan_.name, port.name,
               storage.space().str(),
               port.space.kind == plan::SpaceKind::kDevice
                   ? port.space.str() + ", contiguous at a multiple of 64 bytes, or in host memory"
                   : "host memory" + (port.copied.empty() ? "" : ", since " + port.copied));
}

void StepPorts::check_outputs(std::span<const OutputTensor> outputs) const {
  if (outputs.empty()) return;
  SLUICE_CHECK(outputs.size() == ports_.outputs.size(), "session '{}': memory for {} results; the plan gives {}",
               plan_.name, outputs.size(), ports_.outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const PortInfo& port = ports_.outputs[o];
    const OutputTensor& given = outputs[o];
    SLUICE_CHECK(given.type == port.type, "session '{}': output '{}': memory for {}; it is {}", plan_.name, port.name,
                 given.type.str(), port.type.str());
    SLUICE_CHECK(given.storage != nullptr &&
                     given.storage->bytes() >= checked_bytes(port.type.shape, dtype_size(port.type.dtype)),
                 "session '{}': output '{}': no memory for all of {}; give a tensor that has it", plan_.name, port.name,
                 port.type.str());
    SLUICE_CHECK_KIND(
        kUnsupported, port.space.kind != plan::SpaceKind::kDevice,
        "session '{}': output '{}': memory of a caller's in {}; results lie in {}: give no memory for them", plan_.name,
        port.name, given.storage->space().str(), port.space.str());
    SLUICE_CHECK_KIND(kUnsupported, given.storage->space().kind != plan::SpaceKind::kDevice,
                      "session '{}': output '{}': memory of a caller's in {}; it must be the host's", plan_.name,
                      port.name, given.storage->space().str());
    const bool varies = ports_.varying != nullptr &&
                        std::any_of(ports_.varying->begin(), ports_.varying->end(),
                                    [&](const Ports::Varying& v) { return v.port == static_cast<int>(o); });
    SLUICE_CHECK_KIND(kUnsupported, !varies,
                      "session '{}': output '{}': its length differs from step to step; run() gives it as it is",
                      plan_.name, port.name);
  }
}

}  // namespace sluice
