#pragma once
// plan::Target answered from a KernelTable and device descriptions.
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel_cache.h"
#include "kernels/machine_rates.h"
#include "plan/target.h"

namespace sluice {

class KernelTrials;

// Thread-safe. REQUIRES: the cache, or the table, outlives it.
class KernelTarget : public plan::Target {
 public:
  // Kernels that are prepared to answer are kept in `kernels`, for those who run the plan. `trials`: null where none
  // are run.
  KernelTarget(KernelCache& kernels, std::vector<plan::DeviceDesc> devices, MachineRates rates = {},
               KernelTrials* trials = nullptr);
  KernelTarget(const KernelTable& table, std::vector<plan::DeviceDesc> devices, MachineRates rates = {});

  std::vector<plan::DeviceDesc> devices() const override { return devices_; }
  bool has_kernel(const std::string& op, DeviceKind kind) const override;
  plan::LayoutPreference layouts(const plan::KernelQuery& query) const override;
  uint64_t workspace_bytes(const plan::KernelQuery& query) const override;
  std::vector<plan::InPlacePair> in_place(const plan::KernelQuery& query) const override;
  bool can_fuse(const plan::KernelQuery& query) const override;
  Ints padded_sizes(const plan::KernelQuery& query) const override;
  std::vector<plan::PackedInput> packings(const plan::KernelQuery& query, bool kept) const override;
  std::string implementation(const plan::KernelQuery& query) const override;
  std::string source(const plan::KernelQuery& query) const override;
  double cost_ns(const plan::KernelQuery& query) const override;
  std::string fingerprint() const override;

 private:
  const std::unique_ptr<KernelCache> own_;  // null: somebody else's
  KernelCache& kernels_;
  const KernelTable& table_;
  std::vector<plan::DeviceDesc> devices_;
  MachineRates rates_;
  KernelTrials* trials_ = nullptr;
};

}  // namespace sluice
