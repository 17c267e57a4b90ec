#include "runtime/session/step_ports.h"

#include "runtime/session/engine.h"
#include "runtime/session/storage_pool.h"

namespace sluice {

StepPorts::StepPorts(Engine& engine, const plan::Plan& plan, Ports ports, Exchange exchange, Options options)
    : plan_(plan),
      ports_(std::move(ports)),
      results_memory_(engine.caching_allocator()),
      memory_(engine, plan, ports_, std::move(exchange), options.max_in_flight) {
  if (options.backlog > 0) backlog_ = std::make_unique<Backlog>(options.backlog, ports_, results_memory_);
}

void StepPorts::make_results(StepState& state, const StepCall& call) {
  state.given = !call.outputs.empty();
  state.outputs.resize(ports_.outputs.size());
  state.varying = ports_.varying;
  state.extents.resize(ports_.varying == nullptr ? 0 : ports_.varying->size());
  for (size_t o = 0; o < ports_.outputs.size(); ++o) {
    OutputTensor& output = state.outputs[o];
    output.type = ports_.outputs[o].type;
    if (state.given) {
      output.storage = call.outputs[o].storage;
      continue;
    }
    if (ports_.outputs[o].copied.empty()) {
      output.storage = memory_.new_result(static_cast<int>(o));
      continue;
    }
    if (output.storage != nullptr && sole_owner(output.storage) && !output.storage->gone()) continue;
    const uint64_t bytes = checked_bytes(output.type.shape, dtype_size(output.type.dtype));
    output.storage = std::make_shared<Storage>(results_memory_, bytes);
  }
}

void StepPorts::copy_in(uint64_t step, std::span<const InputTensor> inputs, const actors::Runner& runner) {
  copy_to_slots(step, inputs, runner);
  fill(step, inputs);
}

// Each firing of a feed gets the next rows of an input, and the whole of a scalar.
void StepPorts::copy_to_slots(uint64_t step, std::span<const InputTensor> inputs, const actors::Runner& runner) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Ports::Input& port = ports_.inputs[i];
    if (port.info.copied.empty()) continue;
    ++input_copies_;
    TensorSpec part = inputs[i].spec;
    uint64_t part_bytes = 0;  // from one to the next
    const auto parts = static_cast<uint64_t>(port.parts);
    if (part.shape.rank() > 0) {
      part.shape[0] /= port.parts;
      part_bytes = static_cast<uint64_t>(part.shape[0] * part.strides[0]) * dtype_size(part.dtype);
    }
    for (size_t s = 0; s < port.shards.size(); ++s) {
      const plan::Input& input = plan_.inputs[port.of_plan[s]];
      const plan::Window window = plan::window_of(port.shards[s], part);
      const std::vector<std::byte*>& slots = runner.slots(input.reg);
      for (uint64_t b = 0; b < parts; ++b) {
        memory_.copy_in(input.reg, slots[(step * parts + b) % slots.size()], input.spec,
                        static_cast<const std::byte*>(inputs[i].data) + b * part_bytes + window.offset, window.spec);
      }
    }
  }
}

// Keeps what an output of the plan says that is no result but how long some are.
Status StepPorts::read_extent(StepState& state, int output, const void* slot) const {
  if (ports_.varying == nullptr) return {};
  for (size_t v = 0; v < ports_.varying->size(); ++v) {
    const Ports::Varying& varying = (*ports_.varying)[v];
    if (varying.of_plan != output) continue;
    const plan::View& view = plan_.outputs[output].view;
    const PortInfo& port = ports_.outputs[varying.port];
    int64_t extent = 0;
    try {
      memory_.copy_out(view.index, &extent, view.spec, slot, view.spec);
      SLUICE_CHECK(extent >= 0 && extent <= port.type.shape[varying.axis],
                   "session '{}': output '{}': dim '{}' is {} long; must be 0 to {}", plan_.name, port.name,
                   varying.dim, extent, port.type.shape[varying.axis]);
    } catch (...) {
      return Status::from_current_exception();
    }
    state.extents[v] = extent;
  }
  return {};
}

Status StepPorts::bring_out(StepState& state, const SinkFiring& sink, actors::Runner& runner) {
  Status failure;
  for (size_t i = 0; i < sink.outputs.size(); ++i) {
    const int output = sink.outputs[i], port = ports_.output_of[output];
    if (port < 0) {
      const Status read = read_extent(state, output, sink.slots[i]);
      if (failure.ok()) failure = read;
      continue;
    }
    if (ports_.outputs[port].copied.empty() && !state.given) {
      memory_.hand_out(port, sink.firing, runner, state.outputs[port].storage);
      continue;
    }
    ++output_copies_;
    const TensorSpec& spec = plan_.outputs[output].view.spec;
    const TensorSpec rows = TensorSpec::contiguous({spec.dtype, spec.shape});
    auto* const to = static_cast<std::byte*>(state.outputs[port].storage->data()) + sink.part * rows.extent_bytes();
    try {
      memory_.copy_out(plan_.outputs[output].view.index, to, rows, sink.slots[i], spec);
    } catch (...) {
      if (failure.ok()) failure = Status::from_current_exception();  // by a device
    }
  }
  return failure;
}

}  // namespace sluice
