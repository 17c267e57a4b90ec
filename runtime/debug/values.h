#pragma once
// Reads and writes the values that lie in the slots of registers.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_spec.h"
#include "plan/plan.h"

namespace sluice {

class Engine;

// A tensor in each slot of a register. Most registers have one.
struct SlotPart {
  std::string name;  // of the kernel that writes it, or of the input that it is
  uint64_t offset = 0;
  TensorSpec spec;
};
// The tensors that kernels, inputs and outputs of the plan see in the register; empty where it only orders firings.
std::vector<SlotPart> parts_of(const plan::Plan& plan, int reg);

// The elements of a part, contiguous. `address`: of the slot. REQUIRES: what writes it is done.
std::vector<std::byte> read_part(Engine& engine, const plan::Space& space, const SlotPart& part,
                                 const std::byte* address);
// REQUIRES: `data` has so many elements; nobody is at the slot.
void write_part(Engine& engine, const plan::Space& space, const SlotPart& part, std::byte* address,
                const std::byte* data);

// The first element that is a NaN or an infinity, in row-major order. `data` is contiguous.
struct NotFinite {
  int64_t element = 0;
  double value = 0;
};
std::optional<NotFinite> first_not_finite(const TensorType& type, const std::byte* data);

}  // namespace sluice
