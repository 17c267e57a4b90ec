#pragma once
// Graphs of cuDNN's operations as plans that it executes, and those as kernels.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/generated.h"

namespace sluice::cuda {

// The device that a plan is made for: that of a handle, which executes it, or one that is told by its properties (a
// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) and need not be here.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

struct CudnnPlan {
  CudnnDescriptor config, plan;
  std::string name;  // "engine 38", "engine 38 (2)": the library's second proposal with that engine
  uint64_t workspace_bytes = 0;
};

// Which of the library's engines may compute. None that sums in less than float32.
struct CudnnRules {
  bool exact = false;         // no tensor cores and no narrower operands: float32 that is to stay it
  bool deterministic = true;  // none whose results differ from run to run
  uint64_t most_workspace = uint64_t{512} << 20;
};

// Calls `take` with plans of a graph: of the library's proposals (mode A, then its fallbacks) those that the rules
// allow and the library can plan, until it says true. `name`: only this one. With none where the graph is not
// supported. REQUIRES: operations are finalised.
void each_cudnn_plan(const CudnnMaker& maker, const CudnnTarget& target, const CudnnRules& rules,
                     const std::vector<cudnnBackendDescriptor_t>& operations, const std::string& name,
                     const std::function<bool(CudnnPlan&&)>& take);

// Operands as the graphs of kernels name them: inputs, absent ones too, then outputs, then what else there is.
inline int64_t cudnn_uid(size_t operand) { return static_cast<int64_t>(operand) + 1; }
struct CudnnOperand {
  int64_t uid = 0;
  Operand from = {};
  std::optional<float> value = {};  // of a tensor by value
};

struct CudnnPlans {
  CudnnPlan aligned;  // of operands that begin at multiples of kCudnnAlignment
  std::optional<CudnnPlan> any;
  uint64_t workspace_bytes() const { return std::max(aligned.workspace_bytes, any ? any->workspace_bytes : 0); }
};

class CudnnKernel final : public PreparedKernel {
 public:
  // `operands`: those of the graph that are in memory or in the call. The plan's workspace begins behind `before` bytes
  // of the run's. `otherwise` runs where operands begin elsewhere and no plan is for that; it may be null where one is.
  CudnnKernel(std::string op, CudnnDevice& device, CudnnPlans plans, std::vector<CudnnOperand> operands,
              uint64_t before, std::unique_ptr<PreparedKernel> otherwise = nullptr);
  ~CudnnKernel() override;
  const char* library() const override { return "cuDNN"; }
  void run(const KernelArgs& args) const override;

 private:
  const std::string op_;
  const std::vector<CudnnOperand> operands_;
  const uint64_t before_;
  const std::unique_ptr<PreparedKernel> otherwise_;
  CudnnDevice& device_;
  CudnnPlans plans_;
};

}  // namespace sluice::cuda
