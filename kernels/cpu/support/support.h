#pragma once
// Helpers that CPU kernels of tensor families share: kernels from lambdas, threads, workspaces, spatial layouts.
#include <memory>

#include "kernels/kernel.h"
#include "kernels/machine_rates.h"

namespace sluice::cpu {

// A kernel that is a callable of `const KernelArgs&`.
template <class F>
std::unique_ptr<PreparedKernel> make_kernel(uint64_t workspace_bytes, F run, uint64_t held_bytes = 0) {
  class Kernel final : public PreparedKernel {
   public:
    Kernel(uint64_t workspace, F f, uint64_t held) : f_(std::move(f)) {
      workspace_bytes_ = workspace;
      held_bytes_ = held;
    }
    void run(const KernelArgs& args) const override { f_(args); }

   private:
    F f_;
  };
  return std::make_unique<Kernel>(workspace_bytes, std::move(run), held_bytes);
}

// Threads worth having for about `work` simple vectorised operations. A region costs some microseconds, and each thread
// fetches what others wrote line by line: what takes 20 us is faster alone, on busy machines by far.
inline int threads_for(const PrepareContext& context, double work) { return work < 80e3 ? 1 : context.threads; }
// The same for a product, which reads and writes `bytes`: small ones do the one after the other.
inline int threads_for_product(const PrepareContext& context, double flops, double bytes) {
  constexpr MachineRates kRates;
  return flops / kRates.flops_per_core + bytes / kRates.bytes_per_core < 20e-6 ? 1 : context.threads;
}

// Ranges of a workspace, each 64-aligned.
class WorkspaceLayout {
 public:
  // The offset of `bytes` new bytes.
  uint64_t add(uint64_t bytes) {
    const uint64_t at = bytes_;
    bytes_ = align_up(checked_add(bytes_, bytes), 64);
    return at;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};
inline std::byte* at_offset(void* workspace, uint64_t offset) { return static_cast<std::byte*>(workspace) + offset; }

// Optional operands at the end of the list: absent ones are missing or have rank 0.
inline bool has_operand(const std::vector<TensorSpec>& specs, size_t i) {
  return i < specs.size() && specs[i].shape.rank() > 0;
}
inline const void* operand(const KernelArgs& args, const std::vector<TensorSpec>& specs, size_t i) {
  return i < specs.size() ? args.inputs[i] : nullptr;
}

// How a tensor (N, C, spatial...) lies; strides of dims of size 1 do not count. kAny: neither way.
plan::Layout spatial_layout(const TensorSpec& spec);
// The same, but throws Error(kUnsupported) for kAny; a tensor that lies both ways counts as channels-last.
bool is_channels_last(const TensorSpec& spec, const char* op);
// Channels-last for operands of rank >= 3, else contiguous.
plan::LayoutPreference channels_last_where_spatial(const plan::KernelQuery& query);
// Contiguous where all inputs of rank >= 3 are, else as above.
plan::LayoutPreference spatial_as_inputs_lie(const plan::KernelQuery& query);

// Whatever strides the operands have.
plan::LayoutPreference any_layouts(const plan::KernelQuery& query);

// Copies between contiguous (N, C, S) and channels-last (N, S, C).
void contiguous_to_channels_last(const void* from, void* to, int64_t n, int64_t c, int64_t s, size_t elem_size,
                                 int threads);
inline void channels_last_to_contiguous(const void* from, void* to, int64_t n, int64_t c, int64_t s, size_t elem_size,
                                        int threads) {
  contiguous_to_channels_last(from, to, n, s, c, elem_size, threads);
}

}  // namespace sluice::cpu
