// The exponential of matrices, by Eigen's products and systems.
#include "kernels/cpu/linalg/matrix_exp.h"

#include <Eigen/LU>
#include <cmath>
#include <limits>

#include "kernels/cpu/linalg/linalg.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

// exp(A) = exp(A / 2^s)^(2^s), the inner one by the diagonal Pade approximant of order 13 (Higham, 2005), which is
// exact to rounding where the norm is below kReach.
template <class T>
Columns<T> exponential_of(Columns<T> a) {
  constexpr double kReach = 5.371920351148152;
  const auto norm = static_cast<double>(a.cwiseAbs().colwise().sum().maxCoeff());
  if (!a.allFinite()) return Columns<T>::Constant(a.rows(), a.cols(), std::numeric_limits<RealOf<T>>::quiet_NaN());
  const int squarings = norm > kReach ? static_cast<int>(std::ceil(std::log2(norm / kReach))) : 0;
  a *= static_cast<RealOf<T>>(std::exp2(-squarings));
  double b[14] = {1};
  for (int k = 1; k <= 13; ++k) b[k] = b[k - 1] * (14 - k) / (k * (27.0 - k));
  const auto c = [&](int k) { return static_cast<RealOf<T>>(b[k]); };
  const Columns<T> one = Columns<T>::Identity(a.rows(), a.cols()), a2 = a * a, a4 = a2 * a2, a6 = a4 * a2;
  const Columns<T> odd_high = c(13) * a6 + c(11) * a4 + c(9) * a2, even_high = c(12) * a6 + c(10) * a4 + c(8) * a2;
  const Columns<T> odd_inner = a6 * odd_high + c(7) * a6 + c(5) * a4 + c(3) * a2 + c(1) * one;
  const Columns<T> odd = a * odd_inner, even = a6 * even_high + c(6) * a6 + c(4) * a4 + c(2) * a2 + one;
  Columns<T> y = (even - odd).partialPivLu().solve(even + odd);
  for (int k = 0; k < squarings; ++k) y = (y * y).eval();
  return y;
}

template <class T>
struct MatrixExp {
  MatrixExp(const KernelQuery& q, int threads) : a(q.inputs[0]), threads(threads) {}

  void run(const KernelArgs& args) const {
    for_each_matrix(threads, a.count, [&](int64_t i) {
      if (a.rows == 0) return;
      const auto matrix = a.template read<T>(args.inputs[0], i).template cast<Wide<T>>();
      a.template write<T>(args.outputs[0], i) = exponential_of<Wide<T>>(matrix).template cast<T>();
    });
  }

  Matrices a;
  int threads;
};

}  // namespace

void add_matrix_exp_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "linalg_matrix_exp", .prepare = prepare_floating<MatrixExp>});
}

}  // namespace sluice::cpu
