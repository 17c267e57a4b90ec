// QR, eigenvalues, singular values and the exponential of matrices, by Eigen. Vectors that are determined up to their
// sign have their largest entry positive.
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <Eigen/QR>
#include <Eigen/SVD>

#include "kernels/cpu/families.h"
#include "kernels/cpu/linalg.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

template <class T>
struct Qr {
  Qr(const KernelQuery& q, int threads)
      : a(q.inputs[0]), orthogonal(q.outputs[0]), triangular(q.outputs[1]), threads(threads) {}

  void run(const KernelArgs& args) const {
    for_each_matrix(threads, a.count, [&](int64_t i) {
      auto q = orthogonal.template write<T>(args.outputs[0], i);
      auto r = triangular.template write<T>(args.outputs[1], i);
      if (a.rows == 0 || a.cols == 0) {
        q.setIdentity();
        r.setZero();
        return;
      }
      Columns<T> copy = a.template read<T>(args.inputs[0], i);
      const Eigen::HouseholderQR<Eigen::Ref<Columns<T>>> factors(copy);
      Columns<T> reflected = Columns<T>::Identity(q.rows(), q.cols());
      reflected.applyOnTheLeft(factors.householderQ());
      q = reflected;
      r.setZero();
      const int64_t rows = std::min(r.rows(), copy.rows());
      r.topRows(rows).template triangularView<Eigen::Upper>() = copy.topRows(rows);
    });
  }

  Matrices a, orthogonal, triangular;
  int threads;
};

template <class Column>
bool is_flipped(const Column& v) {
  Eigen::Index at = 0;
  v.cwiseAbs().maxCoeff(&at);
  return v(at) < 0;
}

template <class T>
struct Eigh {
  Eigh(const KernelQuery& q, int threads)
      : a(q.inputs[0]), threads(threads), part(get_attr<std::string>(q.attrs, "part")) {}

  void run(const KernelArgs& args) const {
    for_each_matrix(threads, a.count, [&](int64_t i) {
      if (a.rows == 0) return;
      Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>> values(static_cast<T*>(args.outputs[0]) + i * a.rows, a.rows);
      auto vectors = a.template write<T>(args.outputs[1], i);
      const Columns<T> s = symmetric<T>(a.template read<T>(args.inputs[0], i), part);
      if (!s.allFinite()) {
        values.setConstant(std::numeric_limits<T>::quiet_NaN());
        vectors.setConstant(std::numeric_limits<T>::quiet_NaN());
        return;
      }
      const Eigen::SelfAdjointEigenSolver<Columns<T>> solver(s);
      if (solver.info() != Eigen::Success)
        fail(ErrorKind::kLinAlg,
             "linalg.eigh: (Batch element {}): The algorithm failed to converge because the input matrix is "
             "ill-conditioned or has too many repeated eigenvalues",
             i);
      values = solver.eigenvalues().array();
      vectors = solver.eigenvectors();
      for (int64_t k = 0; k < a.rows; ++k)
        if (is_flipped(vectors.col(k))) vectors.col(k) = -vectors.col(k);
    });
  }

  Matrices a;
  int threads;
  std::string part;
};

// Whether U diag(s) V^T is `a`, with orthonormal columns. Eigen 3.4's divide and conquer loses both for some matrices
// with equal singular values.
bool is_sound(const Columns<double>& a, const Eigen::BDCSVD<Columns<double>>& svd) {
  const auto& s = svd.singularValues();
  const double tolerance = 1e-13 * static_cast<double>(a.rows() + a.cols());
  const auto orthonormal = [&](const Columns<double>& q) {
    return ((q.transpose() * q) - Columns<double>::Identity(q.cols(), q.cols())).cwiseAbs().maxCoeff() <= tolerance;
  };
  const Columns<double> product =
      svd.matrixU().leftCols(s.size()) * s.asDiagonal() * svd.matrixV().leftCols(s.size()).transpose();
  return orthonormal(svd.matrixU()) && orthonormal(svd.matrixV()) &&
         (product - a).cwiseAbs().maxCoeff() <= tolerance * s(0);
}

template <class T>
struct Svd {
  Svd(const KernelQuery& q, int threads)
      : a(q.inputs[0]), left(q.outputs[0]), right(q.outputs[2]), rank(q.inputs[0].shape.rank()), threads(threads) {}

  void run(const KernelArgs& args) const {
    const int64_t n = std::min(a.rows, a.cols);
    for_each_matrix(threads, a.count, [&](int64_t i) {
      auto u = left.template write<T>(args.outputs[0], i);
      auto vh = right.template write<T>(args.outputs[2], i);
      if (n == 0) {
        u.setIdentity();
        vh.setIdentity();
        return;
      }
      Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>> values(static_cast<T*>(args.outputs[1]) + i * n, n);
      const Columns<T> copy = a.template read<T>(args.inputs[0], i);
      if (!copy.allFinite())
        fail(ErrorKind::kLinAlg,
             "{}The algorithm failed to converge because the input matrix contained non-finite values",
             failed_matrix("linalg.svd", rank, i));
      const unsigned options = (u.cols() > n ? Eigen::ComputeFullU : Eigen::ComputeThinU) |
                               (vh.rows() > n ? Eigen::ComputeFullV : Eigen::ComputeThinV);
      const auto keep = [&](const auto& svd) {
        values = svd.singularValues().array().template cast<T>();
        u = svd.matrixU().template cast<T>();
        vh = svd.matrixV().transpose().template cast<T>();
      };
      constexpr int64_t kSmall = 24;  // sweeps over all pairs of columns are fast, and the most accurate
      if (n <= kSmall) {
        keep(Eigen::JacobiSVD<Columns<T>>(copy, options));
      } else {
        const Columns<double> wide = copy.template cast<double>();
        const Eigen::BDCSVD<Columns<double>> svd(wide, options);
        if (is_sound(wide, svd))
          keep(svd);
        else
          keep(Eigen::JacobiSVD<Columns<double>>(wide, options));
      }
      for (int64_t k = 0; k < n; ++k) {
        if (!is_flipped(u.col(k))) continue;
        u.col(k) = -u.col(k);
        vh.row(k) = -vh.row(k);
      }
    });
  }

  Matrices a, left, right;
  int rank, threads;
};

// exp(A) = exp(A / 2^s)^(2^s), the inner one by the diagonal Pade approximant of order 13 (Higham, 2005), which is
// exact to rounding where the norm is below kReach.
template <class T>
Columns<T> exponential_of(Columns<T> a) {
  constexpr double kReach = 5.371920351148152;
  const auto norm = static_cast<double>(a.cwiseAbs().colwise().sum().maxCoeff());
  if (!a.allFinite()) return Columns<T>::Constant(a.rows(), a.cols(), std::numeric_limits<T>::quiet_NaN());
  const int squarings = norm > kReach ? static_cast<int>(std::ceil(std::log2(norm / kReach))) : 0;
  a *= static_cast<T>(std::exp2(-squarings));
  double b[14] = {1};
  for (int k = 1; k <= 13; ++k) b[k] = b[k - 1] * (14 - k) / (k * (27.0 - k));
  const auto c = [&](int k) { return static_cast<T>(b[k]); };
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
      a.template write<T>(args.outputs[0], i) = exponential_of<T>(a.template read<T>(args.inputs[0], i));
    });
  }

  Matrices a;
  int threads;
};

}  // namespace

void add_decomposition_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "linalg_qr", .prepare = prepare_floating<Qr>});
  table.add(DeviceKind::kCpu, {.op = "linalg_eigh", .prepare = prepare_floating<Eigh>});
  table.add(DeviceKind::kCpu, {.op = "linalg_svd", .prepare = prepare_floating<Svd>});
  table.add(DeviceKind::kCpu, {.op = "linalg_matrix_exp", .prepare = prepare_floating<MatrixExp>});
}

}  // namespace sluice::cpu
