// A file of its own, which takes longer to compile than any other.
#include "kernels/cpu/linalg/svd.h"

#include <Eigen/SVD>

namespace sluice::cpu {

// Whether U diag(s) V^T is `a`, with orthonormal columns. Eigen 3.4's divide and conquer loses both for some matrices
// with equal singular values.
static bool is_sound(const Columns<double>& a, const SingularValues<double>& svd) {
  const double tolerance = 1e-13 * static_cast<double>(a.rows() + a.cols());
  const auto orthonormal = [&](const Columns<double>& q) {
    return ((q.transpose() * q) - Columns<double>::Identity(q.cols(), q.cols())).cwiseAbs().maxCoeff() <= tolerance;
  };
  const Columns<double> product = svd.u * svd.s.asDiagonal() * svd.v.transpose();
  return orthonormal(svd.u) && orthonormal(svd.v) && (product - a).cwiseAbs().maxCoeff() <= tolerance * svd.s(0);
}

std::optional<SingularValues<double>> divide_and_conquer(const Columns<double>& a) {
  const Eigen::BDCSVD<Columns<double>> svd(a, Eigen::ComputeFullU | Eigen::ComputeFullV);
  SingularValues<double> found{svd.matrixU(), svd.singularValues(), svd.matrixV()};
  if (!is_sound(a, found)) return std::nullopt;
  return found;
}

}  // namespace sluice::cpu
