#include "kernels/flushing_kernel.h"

#include <utility>

#include "base/denormals.h"

namespace sluice::cpu {
namespace {

class Flushing final : public PreparedKernel {
 public:
  explicit Flushing(std::shared_ptr<const PreparedKernel> kernel) : kernel_(std::move(kernel)) {
    workspace_bytes_ = kernel_->workspace_bytes();
    held_bytes_ = kernel_->held_bytes();
    needs_cores_ = kernel_->needs_cores();
    repeatable_ = kernel_->repeatable();
    packings_ = kernel_->packings();
  }
  const char* library() const override { return kernel_->library(); }
  // The threads of a team do as the one that takes it (WorkerThreads::take_team).
  void run(const KernelArgs& args) const override {
    const DenormalScope scope(true);
    kernel_->run(args);
  }

 private:
  std::shared_ptr<const PreparedKernel> kernel_;
};

}  // namespace

std::shared_ptr<const PreparedKernel> flushing(std::shared_ptr<const PreparedKernel> kernel) {
  if (!kernel->needs_cores()) return kernel;
  return std::make_shared<Flushing>(std::move(kernel));
}

}  // namespace sluice::cpu
