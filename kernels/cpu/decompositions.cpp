// QR and singular values of matrices, by Eigen.
#include <Eigen/QR>
#include <Eigen/SVD>

#include "kernels/cpu/families.h"
#include "kernels/cpu/linalg.h"
#include "kernels/cpu/matrix_exp.h"

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

using Complex = std::complex<double>;

// U, s, V with U diag(s) V^H = a, of complex a with at least as many rows as columns: a = Q R, and Jacobi's method for
// the square R. U has `width` columns.
struct ComplexSvd {
  ComplexSvd(const Columns<Complex>& a, int64_t width) {
    const int64_t n = a.cols();
    const Eigen::HouseholderQR<Columns<Complex>> factors(a);
    const Columns<Complex> r = factors.matrixQR().topRows(n).triangularView<Eigen::Upper>();
    const Eigen::JacobiSVD<Columns<Complex>, Eigen::NoQRPreconditioner> svd(r,
                                                                            Eigen::ComputeFullU | Eigen::ComputeFullV);
    u = Columns<Complex>::Identity(a.rows(), width);
    u.topLeftCorner(n, n) = svd.matrixU();
    u.applyOnTheLeft(factors.householderQ());
    s = svd.singularValues();
    v = svd.matrixV();
  }
  Columns<Complex> u, v;
  Eigen::VectorXd s;
};

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
      using R = RealOf<T>;
      Eigen::Map<Eigen::Array<R, Eigen::Dynamic, 1>> values(static_cast<R*>(args.outputs[1]) + i * n, n);
      const Columns<T> copy = a.template read<T>(args.inputs[0], i);
      if (!copy.allFinite())
        fail(ErrorKind::kLinAlg,
             "{}The algorithm failed to converge because the input matrix contained non-finite values",
             failed_matrix("linalg.svd", rank, i));
      if constexpr (Eigen::NumTraits<T>::IsComplex) {
        const Columns<Complex> wide = copy.template cast<Complex>();
        const bool tall = a.rows >= a.cols;
        const ComplexSvd svd(tall ? wide : Columns<Complex>(wide.adjoint()), tall ? u.cols() : vh.rows());
        values = svd.s.array().cast<R>();
        u = (tall ? svd.u : svd.v).template cast<T>();
        vh = (tall ? svd.v : svd.u).adjoint().template cast<T>();
      } else {
        real_factors(copy, values, u, vh);
      }
      for (int64_t k = 0; k < n; ++k) {
        const T turn = turn_of(u.col(k));
        u.col(k) *= turn;
        vh.row(k) *= Eigen::numext::conj(turn);
      }
    });
  }

  template <class Values, class Factor>
  static void real_factors(const Columns<T>& a, Values& values, Factor& u, Factor& vh) {
    const int64_t n = std::min(a.rows(), a.cols());
    const unsigned options = (u.cols() > n ? Eigen::ComputeFullU : Eigen::ComputeThinU) |
                             (vh.rows() > n ? Eigen::ComputeFullV : Eigen::ComputeThinV);
    const auto keep = [&](const auto& svd) {
      values = svd.singularValues().array().template cast<T>();
      u = svd.matrixU().template cast<T>();
      vh = svd.matrixV().transpose().template cast<T>();
    };
    constexpr int64_t kSmall = 24;  // sweeps over all pairs of columns are fast, and the most accurate
    if (n <= kSmall) {
      keep(Eigen::JacobiSVD<Columns<T>>(a, options));
      return;
    }
    const Columns<double> wide = a.template cast<double>();
    const Eigen::BDCSVD<Columns<double>> svd(wide, options);
    if (is_sound(wide, svd))
      keep(svd);
    else
      keep(Eigen::JacobiSVD<Columns<double>>(wide, options));
  }

  Matrices a, left, right;
  int rank, threads;
};

}  // namespace

void add_decomposition_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "linalg_qr", .prepare = prepare_floating<Qr>});
  table.add(DeviceKind::kCpu, {.op = "linalg_svd", .prepare = prepare_floating<Svd>});
  add_matrix_exp_kernels(table);
}

}  // namespace sluice::cpu
