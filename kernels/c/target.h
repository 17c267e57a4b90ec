#pragma once
// Answers a compiler's questions about a machine whose kernels are printed as C: device c:0, whose memory is the
// host's.
#include "plan/target.h"

namespace sluice::c {

DeviceId device();
inline constexpr uint64_t kAlignment = 8;  // of values in memory: that of the widest element, as there are no vectors

class Target final : public plan::Target {
 public:
  std::vector<plan::DeviceDesc> devices() const override;
  bool has_kernel(const std::string& op, DeviceKind kind) const override;
  plan::LayoutPreference layouts(const plan::KernelQuery& query) const override;  // any
  uint64_t workspace_bytes(const plan::KernelQuery&) const override { return 0; }
  std::vector<plan::InPlacePair> in_place(const plan::KernelQuery& query) const override;
  bool can_fuse(const plan::KernelQuery& query) const override;
  double cost_ns(const plan::KernelQuery& query) const override;
  std::string fingerprint() const override { return "c"; }
};

}  // namespace sluice::c
