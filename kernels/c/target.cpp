#include "kernels/c/target.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/c/printer.h"

namespace sluice::c {

DeviceId device() { return {0, DeviceKind::named("c"), 0}; }

std::vector<plan::DeviceDesc> Target::devices() const { return {{.device = device()}, {.device = {}}}; }

bool Target::has_kernel(const std::string& op, DeviceKind kind) const {
  return kind == device().kind && printers().contains(op);
}

plan::LayoutPreference Target::layouts(const plan::KernelQuery& query) const {
  return {std::vector(query.inputs.size(), plan::Layout::kAny), std::vector(query.outputs.size(), plan::Layout::kAny)};
}

std::vector<plan::InPlacePair> Target::in_place(const plan::KernelQuery& query) const {
  std::vector<plan::InPlacePair> legal = printers().at(query.op).in_place;
  std::erase_if(legal, [&](const plan::InPlacePair& pair) {
    return pair.input >= static_cast<int>(query.inputs.size()) ||
           !(query.inputs[pair.input] == query.outputs[pair.output]);
  });
  return legal;
}

bool Target::can_fuse(const plan::KernelQuery& query) const { return printers().at(query.op).fuses; }

// A machine without vectors: some nanoseconds for an operation, and for an element of memory.
double Target::cost_ns(const plan::KernelQuery& query) const { return 100 + query.cost.bytes + query.cost.flops; }

}  // namespace sluice::c
