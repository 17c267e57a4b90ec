// case, esac: where a value goes in one of several directions, and where these meet again.
#include <memory>

#include "kernels/cpu/families.h"
#include "kernels/cpu/strides/strided_copy.h"
#include "kernels/cpu/support/support.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

// The number that a scalar holds, checked.
int64_t chosen(const plan::KernelQuery& q, const void* index, int64_t n) {
  int64_t i = 0;
  switch (q.inputs[0].dtype) {
    case DType::kBool: i = *static_cast<const bool*>(index) ? 1 : 0; break;
    case DType::kInt32: i = *static_cast<const int32_t*>(index); break;
    default: i = *static_cast<const int64_t*>(index); break;
  }
  if (i < 0 || i >= n) {
    fail(ErrorKind::kIndex, "{}: index {}; must be in [0, {}), the number of branches", q.op, i, n);
  }
  return i;
}

void check_index(const plan::KernelQuery& q) {
  SLUICE_CHECK(q.inputs.size() >= 2 && !q.outputs.empty(),
               "{}: {} inputs and {} outputs; needs an index, a value at least, and an output", q.op, q.inputs.size(),
               q.outputs.size());
  const TensorSpec& index = q.inputs[0];
  SLUICE_CHECK_KIND(kType, index.dtype == DType::kBool || index.dtype == DType::kInt32 || index.dtype == DType::kInt64,
                    "{}: index is {}; must be bool, int32 or int64", q.op, dtype_name(index.dtype));
  SLUICE_CHECK(index.shape.rank() == 0, "{}: index has shape {}; must be a scalar", q.op, index.shape.str());
}

void check_same(const plan::KernelQuery& q, const TensorSpec& a, const TensorSpec& b) {
  SLUICE_CHECK_KIND(kType, a.dtype == b.dtype && a.shape == b.shape, "{}: from {}{} to {}{}; types must be equal", q.op,
                    dtype_name(a.dtype), a.shape.str(), dtype_name(b.dtype), b.shape.str());
}

StridedCopy copy_of(const TensorSpec& from, const TensorSpec& to) {
  return {from.shape, from.strides, to.strides, dtype_size(from.dtype)};
}

class Case final : public PreparedKernel {
 public:
  Case(const plan::KernelQuery& q, int threads) : query_(q), threads_(threads) {
    for (const TensorSpec& out : q.outputs) {
      copies_.push_back(copy_of(q.inputs[1], out));
      zeros_.emplace_back(out, 0.0);
    }
  }
  void run(const KernelArgs& args) const override {
    const bool asked = args.void_outputs != nullptr;
    const auto n = static_cast<int64_t>(copies_.size());
    const bool nothing = asked && (args.void_inputs[0] || args.void_inputs[1]);
    const int64_t index = nothing ? -1 : chosen(query_, args.inputs[0], n);
    for (int64_t i = 0; i < n; ++i) {
      if (i == index) {
        copies_[i].run(args.inputs[1], args.outputs[i], threads_);
      } else if (asked) {
        args.void_outputs[i] = true;
      } else {
        zeros_[i].run(args.outputs[i], threads_);
      }
    }
  }

 private:
  const plan::KernelQuery query_;
  const int threads_;
  std::vector<StridedCopy> copies_;
  std::vector<StridedFill> zeros_;
};

class Esac final : public PreparedKernel {
 public:
  Esac(const plan::KernelQuery& q, int threads) : query_(q), threads_(threads) {
    for (size_t i = 1; i < q.inputs.size(); ++i) copies_.push_back(copy_of(q.inputs[i], q.outputs[0]));
  }
  void run(const KernelArgs& args) const override {
    const bool asked = args.void_outputs != nullptr;
    bool nothing = asked && args.void_inputs[0];
    const int64_t index = nothing ? 0 : chosen(query_, args.inputs[0], static_cast<int64_t>(copies_.size()));
    nothing = nothing || (asked && args.void_inputs[index + 1]);
    if (nothing) {
      args.void_outputs[0] = true;
    } else {
      copies_[index].run(args.inputs[index + 1], args.outputs[0], threads_);
    }
  }

 private:
  const plan::KernelQuery query_;
  const int threads_;
  std::vector<StridedCopy> copies_;
};

std::unique_ptr<PreparedKernel> prepare_case(const plan::KernelQuery& q, const PrepareContext& context) {
  check_index(q);
  SLUICE_CHECK(q.inputs.size() == 2, "case: {} inputs; needs an index and a value", q.inputs.size());
  for (const TensorSpec& out : q.outputs) check_same(q, q.inputs[1], out);
  return std::make_unique<Case>(q, context.threads);
}

std::unique_ptr<PreparedKernel> prepare_esac(const plan::KernelQuery& q, const PrepareContext& context) {
  check_index(q);
  SLUICE_CHECK(q.outputs.size() == 1, "esac: {} outputs; it has one", q.outputs.size());
  for (size_t i = 1; i < q.inputs.size(); ++i) check_same(q, q.inputs[i], q.outputs[0]);
  return std::make_unique<Esac>(q, context.threads);
}

}  // namespace

void add_branch_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "case", .prepare = prepare_case, .layouts = any_layouts, .branches = true});
  table.add(DeviceKind::kCpu, {.op = "esac", .prepare = prepare_esac, .layouts = any_layouts, .branches = true});
}

}  // namespace sluice::cpu
