#include "runtime/session/port_memory.h"

#include <algorithm>

#include "runtime/session/strided_copy.h"
#include "streams/stream.h"

namespace sluice {

PortMemory::PortMemory(Engine& engine, const plan::Plan& plan, const Ports& ports, Exchange exchange,
                       size_t max_in_flight)
    : exchange_(std::move(exchange)), max_in_flight_(max_in_flight) {
  for (const plan::Register& reg : plan.registers) {
    const plan::Space space =
        reg.slots.empty() ? plan::Space{} : plan.spaces[plan.arenas[plan.buffers[reg.slots.front()].arena].space];
    devices_.push_back(space.kind == plan::SpaceKind::kDevice ? &engine.device(space.device) : nullptr);
  }
  const auto memory_of = [&](const plan::Space& space) {
    return space.kind == plan::SpaceKind::kHost ? engine.caching_allocator() : engine.allocator(space);
  };
  for (const Ports::Input& port : ports.inputs) {
    Input& input = inputs_.emplace_back();
    if (!port.info.copied.empty()) continue;
    input.exchanged = true;
    input.parts = port.parts;
    input.spec = TensorSpec::contiguous(port.info.type);
    input.part_bytes = input.spec.extent_bytes() / static_cast<uint64_t>(port.parts);
    input.space = port.info.space;
    TensorSpec part = input.spec;
    if (port.parts > 1) part.shape[0] /= port.parts;
    for (size_t s = 0; s < port.shards.size(); ++s) {
      const int reg = plan.inputs[port.of_plan[s]].reg;
      input.places.push_back({reg, plan::window_of(port.shards[s], part).offset});
      input.to_result |= exchange_.slots[exchange_.of_register[reg]].out;
    }
    const size_t quota = static_cast<size_t>(plan.registers[input.places.front().reg].quota);
    input.pool = std::make_unique<StoragePool>(memory_of(input.space), input.spec.extent_bytes(), input.space,
                                               quota + max_in_flight + 2);
  }
  for (const ExchangedSlots& slots : exchange_.slots) held_.emplace_back(slots.quota);
  outputs_.resize(ports.outputs.size());
  for (size_t o = 0; o < plan.outputs.size(); ++o) {
    const int port = ports.output_of[o];
    if (port < 0 || !ports.outputs[port].copied.empty()) continue;
    Output& output = outputs_[port];
    output.slots = exchange_.of_register[plan.outputs[o].view.index];
    const ExchangedSlots& slots = exchange_.slots[output.slots];
    if (slots.fed) continue;
    output.pool = std::make_unique<StoragePool>(memory_of(slots.space), slots.bytes, slots.space,
                                                static_cast<size_t>(slots.quota) + 2 * max_in_flight + 2);
    for (std::shared_ptr<Storage>& slot : held_[output.slots]) slot = output.pool->take();
  }
  const bool any = std::any_of(inputs_.begin(), inputs_.end(), [](const Input& input) { return input.exchanged; });
  if (any) accepted_.resize(max_in_flight, std::vector<InputTensor>(inputs_.size()));
}

void PortMemory::set(actors::Runner& runner, int slots, int slot, std::byte* address) const {
  for (const int reg : exchange_.slots[slots].registers) runner.set_slot(reg, slot, address);
}

void PortMemory::bind(actors::Runner& runner) const {
  for (size_t g = 0; g < held_.size(); ++g) {
    for (size_t s = 0; s < held_[g].size(); ++s) {
      auto* const address = held_[g][s] == nullptr ? nullptr : static_cast<std::byte*>(held_[g][s]->data());
      set(runner, static_cast<int>(g), static_cast<int>(s), address);
    }
  }
}

bool PortMemory::fits(size_t index, const InputTensor& input) const {
  const Input& port = inputs_[index];
  return port.exchanged && input.storage != nullptr && same_memory(input.storage->space(), port.space) &&
         input.spec == port.spec && reinterpret_cast<uintptr_t>(input.data) % plan::kAlignment == 0 &&
         (!port.to_result || input.data == input.storage->data());
}

void PortMemory::copy_in(int reg, void* slot, const TensorSpec& slot_spec, const void* from,
                         const TensorSpec& spec) const {
  Device* const device = devices_[reg];
  if (device == nullptr) return strided_copy(slot, slot_spec, from, spec);
  const uint64_t bytes = slot_spec.extent_bytes();
  if (spec == slot_spec && is_dense(spec.shape, spec.strides)) return device->copy_from_host(slot, from, bytes);
  std::vector<std::byte> staged(bytes);
  if (!is_dense(slot_spec.shape, slot_spec.strides)) device->copy_to_host(staged.data(), slot, bytes);
  strided_copy(staged.data(), slot_spec, from, spec);
  device->copy_from_host(slot, staged.data(), bytes);
}

void PortMemory::copy_out(int reg, void* to, const TensorSpec& spec, const void* slot,
                          const TensorSpec& slot_spec) const {
  Device* const device = devices_[reg];
  if (device == nullptr) return strided_copy(to, spec, slot, slot_spec);
  const uint64_t bytes = slot_spec.extent_bytes();
  if (spec == slot_spec && is_dense(spec.shape, spec.strides)) return device->copy_to_host(to, slot, bytes);
  std::vector<std::byte> staged(bytes);
  device->copy_to_host(staged.data(), slot, bytes);
  strided_copy(to, spec, staged.data(), slot_spec);
}

void PortMemory::accept(uint64_t step, std::span<const InputTensor> inputs) {
  if (accepted_.empty()) return;
  std::vector<InputTensor>& accepted = accepted_[step % max_in_flight_];
  try {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Input& port = inputs_[i];
      if (!port.exchanged) continue;
      InputTensor& given = accepted[i];
      if (fits(i, inputs[i])) {
        given = inputs[i];
        continue;
      }
      given.spec = port.spec;
      given.storage = port.pool->take();
      given.data = given.storage->data();
    }
  } catch (...) {
    for (InputTensor& given : accepted) given.storage.reset();
    throw;
  }
}

uint64_t PortMemory::fill(uint64_t step, std::span<const InputTensor> inputs) {
  if (accepted_.empty()) return 0;
  const std::vector<InputTensor>& accepted = accepted_[step % max_in_flight_];
  uint64_t copies = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& port = inputs_[i];
    if (!port.exchanged || (accepted[i].storage == inputs[i].storage && accepted[i].data == inputs[i].data)) continue;
    ++copies;
    copy_in(port.places.front().reg, accepted[i].storage->data(), port.spec, inputs[i].data, inputs[i].spec);
  }
  return copies;
}

void PortMemory::put(uint64_t step, actors::Runner& runner) {
  if (accepted_.empty()) return;
  std::vector<InputTensor>& accepted = accepted_[step % max_in_flight_];
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& port = inputs_[i];
    if (!port.exchanged) continue;
    auto* const data = static_cast<std::byte*>(const_cast<void*>(accepted[i].data));
    for (const Place& place : port.places) {
      const int slots = exchange_.of_register[place.reg];
      for (uint64_t b = 0; b < static_cast<uint64_t>(port.parts); ++b) {
        const uint64_t firing = step * static_cast<uint64_t>(port.parts) + b;
        const size_t slot = firing % held_[slots].size();
        held_[slots][slot] = accepted[i].storage;
        set(runner, slots, static_cast<int>(slot), data + b * port.part_bytes + place.offset);
      }
    }
    accepted[i].storage.reset();
  }
}

std::shared_ptr<Storage> PortMemory::release(int reg, uint64_t firing) {
  const int slots = exchange_.of_register[reg];
  if (slots < 0 || !exchange_.slots[slots].fed) return nullptr;
  return std::move(held_[slots][firing % held_[slots].size()]);
}

std::shared_ptr<Storage> PortMemory::new_result(int output) {
  return outputs_[output].pool == nullptr ? nullptr : outputs_[output].pool->take();
}

void PortMemory::hand_out(int output, uint64_t firing, actors::Runner& runner, std::shared_ptr<Storage>& result) {
  const int slots = outputs_[output].slots;
  const size_t slot = firing % held_[slots].size();
  held_[slots][slot].swap(result);
  if (held_[slots][slot] != nullptr)
    set(runner, slots, static_cast<int>(slot), static_cast<std::byte*>(held_[slots][slot]->data()));
}

void PortMemory::clear_inputs() {
  for (size_t g = 0; g < held_.size(); ++g)
    for (std::shared_ptr<Storage>& slot : held_[g])
      if (exchange_.slots[g].fed) slot.reset();
  for (std::vector<InputTensor>& accepted : accepted_)
    for (InputTensor& given : accepted) given.storage.reset();
}

void PortMemory::clear() {
  clear_inputs();
  for (auto& slots : held_)
    for (std::shared_ptr<Storage>& slot : slots) slot.reset();
  for (const Input& input : inputs_)
    if (input.pool != nullptr) input.pool->clear();
  for (const Output& output : outputs_)
    if (output.pool != nullptr) output.pool->clear();
}

uint64_t PortMemory::input_bytes(const plan::Space& space) const {
  uint64_t bytes = 0;
  for (const Input& input : inputs_)
    if (input.exchanged && input.space == space) bytes += input.pool->bytes();
  return bytes;
}

uint64_t PortMemory::output_bytes(const plan::Space& space) const {
  uint64_t bytes = 0;
  for (const Output& output : outputs_) {
    if (output.pool == nullptr) continue;
    const ExchangedSlots& slots = exchange_.slots[output.slots];
    if (slots.space == space) bytes += (static_cast<uint64_t>(slots.quota) + max_in_flight_) * slots.bytes;
  }
  return bytes;
}

}  // namespace sluice
