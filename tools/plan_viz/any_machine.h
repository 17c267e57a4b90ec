#pragma once
// A target for views that ask the compiler about a graph, and not about a machine.
#include <string>
#include <vector>

#include "plan/target.h"

namespace sluice::plan_viz {

// Has every kernel: neither what a backend takes nor how values lie depends on that.
class AnyMachine final : public plan::Target {
 public:
  std::vector<plan::DeviceDesc> devices() const override { return std::vector<plan::DeviceDesc>(1); }
  bool has_kernel(const std::string&, DeviceKind) const override { return true; }
  plan::LayoutPreference layouts(const plan::KernelQuery& q) const override {
    return {std::vector(q.inputs.size(), plan::Layout::kAny), std::vector(q.outputs.size(), plan::Layout::kAny)};
  }
  uint64_t workspace_bytes(const plan::KernelQuery&) const override { return 0; }
  std::vector<plan::InPlacePair> in_place(const plan::KernelQuery&) const override { return {}; }
  bool can_fuse(const plan::KernelQuery&) const override { return false; }
  double cost_ns(const plan::KernelQuery&) const override { return 1; }
  std::string fingerprint() const override { return "any"; }
};

}  // namespace sluice::plan_viz
