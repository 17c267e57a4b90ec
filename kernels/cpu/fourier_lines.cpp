// fourier: discrete Fourier transforms of the lines along an axis.
#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/fourier.h"
#include "kernels/cpu/lines.h"
#include "kernels/cpu/support.h"

namespace sluice::cpu {
namespace {

// Elements are T, and computed with as C.
template <class T, class C>
class FourierLines final : public PreparedKernel {
 public:
  FourierLines(const plan::KernelQuery& q, int threads)
      : lines_(q),
        transform_(lines_.length(), get_attr<bool>(q.attrs, "inverse")),
        scale_(get_attr<double>(q.attrs, "scale")),
        threads_(threads),
        // A few tasks per thread, each with memory of its own.
        tasks_(std::min<int64_t>(lines_.count(), 4 * std::max(threads, 1))) {
    slot_ = lines_.length() + transform_.scratch();
    workspace_bytes_ = static_cast<uint64_t>(tasks_ * slot_) * sizeof(std::complex<C>);
  }

  void run(const KernelArgs& args) const override {
    auto* slots = static_cast<std::complex<C>*>(args.workspace);
    lines_.for_each_of_tasks(threads_, tasks_, [&](int64_t task, const auto& at) {
      std::complex<C>* line = slots + task * slot_;
      const auto* x = reinterpret_cast<const std::complex<T>*>(static_cast<const char*>(args.inputs[0]) + at[0]);
      auto* y = reinterpret_cast<std::complex<T>*>(static_cast<char*>(args.outputs[0]) + at[1]);
      const int64_t n = lines_.length(), from = lines_.step(0), to = lines_.step(1);
      for (int64_t i = 0; i < n; ++i) line[i] = std::complex<C>(x[i * from]);
      transform_.run(line, line + n);
      for (int64_t i = 0; i < n; ++i)
        y[i * to] = std::complex<T>(static_cast<T>(line[i].real() * static_cast<C>(scale_)),
                                    static_cast<T>(line[i].imag() * static_cast<C>(scale_)));
    });
  }

 private:
  const Lines lines_;
  const Fourier<C> transform_;
  const double scale_;
  const int threads_;
  const int64_t tasks_;
  int64_t slot_ = 0;
};

std::unique_ptr<PreparedKernel> prepare_fourier(const plan::KernelQuery& q, const PrepareContext& context) {
  const DType dtype = q.inputs.at(0).dtype;
  SLUICE_CHECK_KIND(kUnsupported, is_complex(dtype), "fourier: no cpu kernel for {}; cast it first", dtype_name(dtype));
  if (dtype == DType::kComplex128) return std::make_unique<FourierLines<double, double>>(q, context.threads);
  const int dim = normalize_axis(get_attr<int64_t>(q.attrs, "dim"), q.inputs[0].shape.rank(), "fourier");
  // A convolution with a chirp loses digits that float32 has not.
  if (Fourier<float>::has_small_factors(q.inputs[0].shape[dim]))
    return std::make_unique<FourierLines<float, float>>(q, context.threads);
  return std::make_unique<FourierLines<float, double>>(q, context.threads);
}

}  // namespace

void add_fourier_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "fourier", .prepare = prepare_fourier, .layouts = [](const plan::KernelQuery&) {
                                 return plan::LayoutPreference{{plan::Layout::kAny}, {plan::Layout::kAny}};
                               }});
}

}  // namespace sluice::cpu
