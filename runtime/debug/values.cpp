#include "runtime/debug/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/elements.h"
#include "runtime/session/engine.h"
#include "streams/stream.h"

namespace sluice {
namespace {

// A part is added unless one is known that begins there, or it does not fit: inputs are told as callers see them, and a
// feed may put them into slots in pieces.
void add_part(std::vector<SlotPart>& parts, const plan::Register& reg, SlotPart part) {
  if (part.offset + part.spec.extent_bytes() > reg.bytes) return;
  const bool known =
      std::any_of(parts.begin(), parts.end(), [&](const SlotPart& p) { return p.offset == part.offset; });
  if (!known) parts.push_back(std::move(part));
}

void add_views(std::vector<SlotPart>& parts, const plan::Plan& plan, int reg, const std::string& name,
               const std::vector<plan::View>& views) {
  for (const plan::View& view : views)
    if (view.base == plan::BaseKind::kRegister && view.index == reg)
      add_part(parts, plan.registers[reg], {name, view.offset, view.spec});
}

}  // namespace

std::vector<SlotPart> parts_of(const plan::Plan& plan, int reg) {
  std::vector<SlotPart> parts;
  if (plan.registers[reg].bytes == 0) return parts;
  const auto kernels_of = [&](int actor, auto&& visit) {
    for (const plan::Instr& instr : plan.actors[actor].program)
      if (instr.kind == plan::InstrKind::kRun) visit(plan.kernels[instr.index]);
  };
  kernels_of(plan.registers[reg].producer,
             [&](const plan::Kernel& k) { add_views(parts, plan, reg, k.name, k.outputs); });
  // What a feed or another rank writes, no kernel of the producer tells: whoever reads it does.
  for (const plan::Edge& edge : plan.edges)
    if (parts.empty() && edge.reg == reg)
      kernels_of(edge.consumer,
                 [&](const plan::Kernel& k) { add_views(parts, plan, reg, plan.registers[reg].name, k.inputs); });
  for (const plan::Input& input : plan.inputs)
    if (parts.empty() && input.reg == reg) add_part(parts, plan.registers[reg], {input.name, 0, input.spec});
  for (const plan::Output& output : plan.outputs)
    if (parts.empty()) add_views(parts, plan, reg, output.name, {output.view});
  std::sort(parts.begin(), parts.end(), [](const SlotPart& a, const SlotPart& b) { return a.offset < b.offset; });
  return parts;
}

std::vector<std::byte> read_part(Engine& engine, const plan::Space& space, const SlotPart& part,
                                 const std::byte* address) {
  const std::byte* from = address + part.offset;
  std::vector<std::byte> copy;
  if (space.kind == plan::SpaceKind::kDevice) {
    copy.resize(part.spec.extent_bytes());
    engine.device(space.device).copy_to_host(copy.data(), from, copy.size());
    from = copy.data();
  }
  const size_t size = dtype_size(part.spec.dtype);
  std::vector<std::byte> data(static_cast<size_t>(numel(part.spec.shape)) * size);
  for_each_element(part.spec, [&](int64_t i, int64_t offset) {
    std::memcpy(data.data() + static_cast<size_t>(i) * size, from + offset * static_cast<int64_t>(size), size);
  });
  return data;
}

void write_part(Engine& engine, const plan::Space& space, const SlotPart& part, std::byte* address,
                const std::byte* data) {
  std::byte* const to = address + part.offset;
  const bool on_device = space.kind == plan::SpaceKind::kDevice;
  std::vector<std::byte> copy;
  if (on_device) {  // elements between those of the part stay as they are
    copy.resize(part.spec.extent_bytes());
    engine.device(space.device).copy_to_host(copy.data(), to, copy.size());
  }
  const size_t size = dtype_size(part.spec.dtype);
  for_each_element(part.spec, [&](int64_t i, int64_t offset) {
    std::memcpy((on_device ? copy.data() : to) + offset * static_cast<int64_t>(size),
                data + static_cast<size_t>(i) * size, size);
  });
  if (on_device) engine.device(space.device).copy_from_host(to, copy.data(), copy.size());
}

std::optional<NotFinite> first_not_finite(const TensorType& type, const std::byte* data) {
  const bool complex = is_complex(type.dtype);
  if (!complex && !is_floating(type.dtype)) return std::nullopt;
  // A complex number is two numbers.
  const DType number = type.dtype == DType::kComplex64    ? DType::kFloat32
                       : type.dtype == DType::kComplex128 ? DType::kFloat64
                                                          : type.dtype;
  const int64_t per_element = complex ? 2 : 1;
  for (int64_t i = 0; i < numel(type.shape) * per_element; ++i) {
    const double value = element_of(number, data + static_cast<size_t>(i) * dtype_size(number));
    if (!std::isfinite(value)) return NotFinite{i / per_element, value};
  }
  return std::nullopt;
}

}  // namespace sluice
