// torch.fft: transforms of complex and real lines, of one dim and of several.
#include <algorithm>
#include <cmath>
#include <set>

#include "graph/ops/comparison.h"
#include "graph/ops/complex.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/fft.h"
#include "graph/ops/forms.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

using Norm = std::optional<std::string>;
using Length = std::optional<int64_t>;
using Lengths = std::optional<Ints>;

// The scale of a transform over n elements: the whole factor is on the side that is not `norm`'s, or half of it on
// both.
double scale_of(const char* name, const Norm& norm, bool inverse, int64_t n) {
  const std::string which = norm.value_or("backward");
  SLUICE_CHECK_KIND(kRuntime, which == "forward" || which == "backward" || which == "ortho",
                    "{}: Invalid normalization mode: \"{}\"; must be forward, backward or ortho", name, which);
  if (which == "ortho") return 1 / std::sqrt(static_cast<double>(n));
  return (which == "forward") != inverse ? 1 / static_cast<double>(n) : 1;
}

void check_supported(const char* name, const Value& x) {
  const bool half = x.dtype() == DType::kFloat16 || x.dtype() == DType::kBFloat16;
  SLUICE_CHECK_KIND(kRuntime, !half, "{}: Unsupported dtype {}; cast it to float32", name, dtype_name(x.dtype()));
}

Value as_complex(const char* name, const Value& x) {
  check_supported(name, x);
  const Value numbers = to_floating(x);
  return cast(numbers, to_complex(numbers.dtype()));
}

Value as_real(const char* name, const Value& x) {
  SLUICE_CHECK_KIND(kRuntime, !is_complex(x.dtype()), "{} expects a real input tensor, but got {}", name,
                    dtype_name(x.dtype()));
  check_supported(name, x);
  return to_floating(x);
}

void check_length(const char* name, int64_t n) {
  SLUICE_CHECK_KIND(kRuntime, n >= 1, "{}: Invalid number of data points ({}) specified; must be positive", name, n);
}

// `n` elements of the axis: cut, or with zeros behind.
Value resized(const char* name, const Value& x, int axis, int64_t n) {
  check_length(name, n);
  const int64_t size = x.shape()[axis];
  if (n <= size) return n == size ? x : narrow(x, axis, 0, n);
  Ints low(x.rank(), 0), high(x.rank(), 0);
  high[axis] = n - size;
  return pad(x, low, high);
}

int axis_of(const char* name, const Value& x, int64_t dim) { return normalize_axis(dim, x.rank(), name); }

Value complex_line(const char* name, const Value& input, Length n, int64_t dim, const Norm& norm, bool inverse) {
  const Value z = as_complex(name, input);
  const int axis = axis_of(name, z, dim);
  const Value x = resized(name, z, axis, n.value_or(z.shape()[axis]));
  return fourier(x, axis, inverse, scale_of(name, norm, inverse, x.shape()[axis]));
}

// The first half of the transform of real numbers: the other is its conjugate.
Value real_line(const char* name, const Value& input, Length n, int64_t dim, const Norm& norm, bool inverse) {
  const Value real = as_real(name, input);
  const int axis = axis_of(name, real, dim);
  const Value x = resized(name, real, axis, n.value_or(real.shape()[axis]));
  return fourier_real(x, axis, inverse, scale_of(name, norm, inverse, x.shape()[axis]));
}

// The real transform of n numbers of which the second half are conjugates of the first.
Value hermitian_line(const char* name, const Value& input, Length n, int64_t dim, const Norm& norm, bool inverse) {
  const Value z = as_complex(name, input);
  const int axis = axis_of(name, z, dim);
  const int64_t length = n.value_or(2 * (z.shape()[axis] - 1));
  check_length(name, length);
  const Value half = resized(name, z, axis, length / 2 + 1);
  return fourier_hermitian(half, axis, inverse, scale_of(name, norm, inverse, length), length);
}

// The axes that are transformed, and their lengths; -1: as long as it is.
struct Plan {
  Ints axes, lengths;
};
Plan plan_of(const char* name, const Value& x, const Lengths& s, const Lengths& dim) {
  Plan plan;
  if (dim) {
    for (int64_t d : *dim) plan.axes.push_back(axis_of(name, x, d));
    SLUICE_CHECK_KIND(kRuntime, std::set(plan.axes.begin(), plan.axes.end()).size() == plan.axes.size(),
                      "{}: FFT dims must be unique: got {}", name, attr_str(*dim));
  } else {
    const int64_t count = s ? static_cast<int64_t>(s->size()) : x.rank();
    SLUICE_CHECK_KIND(kRuntime, count <= x.rank(),
                      "{}: Got shape with {} values but input tensor only has {} dimensions", name, count, x.rank());
    for (int64_t i = x.rank() - count; i < x.rank(); ++i) plan.axes.push_back(i);
  }
  plan.lengths = s.value_or(Ints(plan.axes.size(), -1));
  SLUICE_CHECK_KIND(kRuntime, plan.lengths.size() == plan.axes.size(),
                    "{}: When given, dim and shape arguments must have the same length: got {} and {}", name,
                    plan.axes.size(), plan.lengths.size());
  return plan;
}

Length given(int64_t n) { return n == -1 ? Length() : Length(n); }

// Every axis but the last in turn.
Value outer_lines(const char* name, Value x, const Plan& plan, size_t count, const Norm& norm, bool inverse) {
  for (size_t i = count; i-- > 0;) x = complex_line(name, x, given(plan.lengths[i]), plan.axes[i], norm, inverse);
  return x;
}

void check_some(const char* name, const Plan& plan) {
  SLUICE_CHECK_KIND(kRuntime, !plan.axes.empty(), "{} must transform at least one axis", name);
}

Value complex_axes(const char* name, const Value& x, const Lengths& s, const Lengths& dim, const Norm& norm,
                   bool inverse) {
  const Plan plan = plan_of(name, x, s, dim);
  if (plan.axes.empty()) return copy(as_complex(name, x));
  return outer_lines(name, x, plan, plan.axes.size(), norm, inverse);
}

Value real_axes(const char* name, const Value& x, const Lengths& s, const Lengths& dim, const Norm& norm,
                bool inverse) {
  const Plan plan = plan_of(name, x, s, dim);
  check_some(name, plan);
  const Value last = real_line(name, x, given(plan.lengths.back()), plan.axes.back(), norm, inverse);
  return outer_lines(name, last, plan, plan.axes.size() - 1, norm, inverse);
}

Value hermitian_axes(const char* name, const Value& x, const Lengths& s, const Lengths& dim, const Norm& norm,
                     bool inverse) {
  const Plan plan = plan_of(name, x, s, dim);
  check_some(name, plan);
  const Value others = outer_lines(name, x, plan, plan.axes.size() - 1, norm, inverse);
  return hermitian_line(name, others, given(plan.lengths.back()), plan.axes.back(), norm, inverse);
}

using Line = Value (*)(const char*, const Value&, Length, int64_t, const Norm&, bool);
using Axes = Value (*)(const char*, const Value&, const Lengths&, const Lengths&, const Norm&, bool);

struct Transform {
  const char *name, *doc;
  Line line;
  Axes axes;
  bool inverse;
};
constexpr Transform kTransforms[] = {
    {"fft", "The discrete Fourier transform", &complex_line, &complex_axes, false},
    {"ifft", "The inverse discrete Fourier transform", &complex_line, &complex_axes, true},
    {"rfft", "The first half of the Fourier transform of real numbers", &real_line, &real_axes, false},
    {"irfft", "The real inverse transform of what rfft gives", &hermitian_line, &hermitian_axes, true},
    {"hfft", "The real transform of the first half of a Hermitian signal", &hermitian_line, &hermitian_axes, false},
    {"ihfft", "The inverse of hfft: the first half of a Hermitian signal", &real_line, &real_axes, true},
};
// Names are kept by the lambdas, so they must live as long as the forms.
template <size_t K>
void add(std::vector<Form>& forms) {
  static const std::string name = kTransforms[K].name, two = name + "2", several = name + "n";
  static const std::string docs[] = {
      fmt::format("{} along `dim`, of n elements. torch.fft.{}.", kTransforms[K].doc, name),
      fmt::format("{} over two dims. torch.fft.{}.", kTransforms[K].doc, two),
      fmt::format("{} over several dims (none: all, or the last of `s`). torch.fft.{}.", kTransforms[K].doc, several)};
  const auto form = [&](const std::string& doc, Overload made) {
    forms.push_back({.doc = doc.c_str(), .overloads = {std::move(made)}, .method = false, .out = true});
  };
  form(docs[0], overload(
                    "fft." + name + "(Tensor input, int? n=None, int dim=-1, str? norm=None) -> Tensor",
                    +[](const Value& x, const Length& n, int64_t dim, const Norm& norm) {
                      return kTransforms[K].line(name.c_str(), x, n, dim, norm, kTransforms[K].inverse);
                    }));
  form(docs[1], overload(
                    "fft." + two + "(Tensor input, int[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",
                    +[](const Value& x, const Lengths& s, const Ints& dim, const Norm& norm) {
                      return kTransforms[K].axes(two.c_str(), x, s, dim, norm, kTransforms[K].inverse);
                    }));
  form(docs[2], overload(
                    "fft." + several + "(Tensor input, int[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
                    +[](const Value& x, const Lengths& s, const Lengths& dim, const Norm& norm) {
                      return kTransforms[K].axes(several.c_str(), x, s, dim, norm, kTransforms[K].inverse);
                    }));
}

Value shifted(const Value& x, const Lengths& dim, bool back) {
  Ints dims = dim.value_or(Ints()), shifts;
  if (!dim)
    for (int i = 0; i < x.rank(); ++i) dims.push_back(i);
  for (int64_t& d : dims) {
    d = axis_of("fftshift", x, d);
    const int64_t size = x.shape()[static_cast<int>(d)];
    shifts.push_back(back ? size - size / 2 : size / 2);
  }
  return roll(x, shifts, dims);
}

}  // namespace

std::vector<Form> fft_forms() {
  std::vector<Form> forms;
  add<0>(forms);
  add<1>(forms);
  add<2>(forms);
  add<3>(forms);
  add<4>(forms);
  add<5>(forms);
  forms.push_back({.doc = "Moves the element 0 of the dims to their middle. torch.fft.fftshift.",
                   .overloads = {overload(
                       "fft.fftshift(Tensor input, int[1]? dim=None) -> Tensor",
                       +[](const Value& x, const Lengths& dim) { return shifted(x, dim, false); })},
                   .method = false});
  forms.push_back({.doc = "The inverse of fftshift. torch.fft.ifftshift.",
                   .overloads = {overload(
                       "fft.ifftshift(Tensor input, int[1]? dim=None) -> Tensor",
                       +[](const Value& x, const Lengths& dim) { return shifted(x, dim, true); })},
                   .method = false});
  return forms;
}

}  // namespace sluice::ops
