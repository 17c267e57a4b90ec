// fourier, fourier_real, fourier_hermitian: discrete Fourier transforms of the lines along an axis.
#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/fourier/fourier_panels.h"
#include "kernels/cpu/reduction/lines.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

template <class C>
class FourierLines final : public PreparedKernel {
 public:
  using Select = FourierTransform<C> (*)(bool panel);
  FourierLines(const plan::KernelQuery& q, FourierKind kind, int64_t n, int threads, Select select)
      : lines_(q),
        job_(kind, n, get_attr<bool>(q.attrs, "inverse"), get_attr<double>(q.attrs, "scale")),
        threads_(threads) {
    // Panels of long lines leave the caches, and of few lines their lanes empty.
    constexpr int64_t kLongest = 1 << 16, kFewest = 3;
    transform_ = select(lines_.count() >= kFewest && n <= kLongest);
    // A few tasks per thread, each with memory of its own.
    const int64_t groups = (lines_.count() + transform_.lanes - 1) / transform_.lanes;
    tasks_ = std::clamp<int64_t>(groups, 1, 4 * std::max(threads, 1));
    slot_ = 2 * transform_.lanes * job_.workspace();
    workspace_bytes_ = static_cast<uint64_t>(tasks_ * slot_) * sizeof(C);
  }

  void run(const KernelArgs& args) const override {
    lines_.for_each_group_of_tasks(threads_, tasks_, static_cast<size_t>(transform_.lanes),
                                   [&](int64_t task, const auto& group) {
                                     FourierLinesAt at{.in = {},
                                                       .out = {},
                                                       .in_step = lines_.step(0),
                                                       .out_step = lines_.step(1),
                                                       .count = static_cast<int>(group.size())};
                                     for (size_t l = 0; l < group.size(); ++l) {
                                       at.in[l] = static_cast<const char*>(args.inputs[0]) + group[l][0];
                                       at.out[l] = static_cast<char*>(args.outputs[0]) + group[l][1];
                                     }
                                     transform_.run(job_, at, static_cast<C*>(args.workspace) + task * slot_);
                                   });
  }

 private:
  const Lines lines_;
  const FourierJob<C> job_;
  const int threads_;
  FourierTransform<C> transform_;
  int64_t tasks_ = 1, slot_ = 0;
};

FourierTransform<double> doubles(bool panel) { return double_transform(panel, false); }
FourierTransform<double> doubles_of_floats(bool panel) { return double_transform(panel, true); }

PrepareFn prepare(FourierKind kind) {
  return [kind](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
    const DType dtype = q.inputs.at(0).dtype, part = to_real(dtype);
    SLUICE_CHECK_KIND(
        kUnsupported,
        is_complex(dtype) != (kind == FourierKind::kReal) && (part == DType::kFloat32 || part == DType::kFloat64),
        "{}: no cpu kernel for {}; cast it first", q.op, dtype_name(dtype));
    const TensorSpec& whole = kind == FourierKind::kHermitian ? q.outputs.at(0) : q.inputs[0];
    const int64_t n = whole.shape[normalize_axis(get_attr<int64_t>(q.attrs, "dim"), whole.shape.rank(), "fourier")];
    if (part == DType::kFloat64) return std::make_unique<FourierLines<double>>(q, kind, n, context.threads, &doubles);
    // A convolution with a chirp loses digits that float32 has not.
    if (FourierPlan<float>::has_small_factors(n))
      return std::make_unique<FourierLines<float>>(q, kind, n, context.threads, &float_transform);
    return std::make_unique<FourierLines<double>>(q, kind, n, context.threads, &doubles_of_floats);
  };
}

}  // namespace

void add_fourier_kernels(KernelTable& table) {
  for (const auto& [op, kind] : {std::pair{"fourier", FourierKind::kComplex},
                                 {"fourier_real", FourierKind::kReal},
                                 {"fourier_hermitian", FourierKind::kHermitian}})
    table.add(DeviceKind::kCpu, {.op = op, .prepare = prepare(kind), .layouts = [](const plan::KernelQuery&) {
                                   return plan::LayoutPreference{{plan::Layout::kAny}, {plan::Layout::kAny}};
                                 }});
}

}  // namespace sluice::cpu
