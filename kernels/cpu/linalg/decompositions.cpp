// QR and singular values of matrices, by Eigen.
#include <Eigen/QR>
#include <Eigen/SVD>

#include "kernels/cpu/families.h"
#include "kernels/cpu/linalg/linalg.h"
#include "kernels/cpu/linalg/matrix_exp.h"
#include "kernels/cpu/linalg/svd.h"

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
      using M = Columns<Wide<T>>;
      const M copy = a.template read<T>(args.inputs[0], i).template cast<Wide<T>>();
      const Eigen::HouseholderQR<M> factors(copy);
      M reflected = M::Identity(q.rows(), q.cols());
      reflected.applyOnTheLeft(factors.householderQ());
      q = reflected.template cast<T>();
      r.setZero();
      const int64_t rows = std::min(r.rows(), copy.rows());
      r.topRows(rows).template triangularView<Eigen::Upper>() = factors.matrixQR().topRows(rows).template cast<T>();
    });
  }

  Matrices a, orthogonal, triangular;
  int threads;
};

// The SVD of a square matrix: by sweeps over all pairs of columns, which is fast and the most accurate for few, or by
// divide and conquer.
template <class S>
SingularValues<S> square_svd(const Columns<S>& a) {
  if constexpr (!Eigen::NumTraits<S>::IsComplex) {
    constexpr int64_t kFew = 24;
    if (a.cols() > kFew)
      if (auto found = divide_and_conquer(a)) return *std::move(found);
  }
  const Eigen::JacobiSVD<Columns<S>, Eigen::NoQRPreconditioner> svd(a, Eigen::ComputeFullU | Eigen::ComputeFullV);
  return {svd.matrixU(), svd.singularValues(), svd.matrixV()};
}

// The SVD of a matrix with at least as many rows as columns: from a = Q R and the SVD of the square R. U has `width`
// columns.
template <class S>
SingularValues<S> tall_svd(const Columns<S>& a, int64_t width) {
  const int64_t n = a.cols();
  const Eigen::HouseholderQR<Columns<S>> factors(a);
  const Columns<S> r = factors.matrixQR().topRows(n).template triangularView<Eigen::Upper>();
  SingularValues<S> inner = square_svd<S>(r);
  Columns<S> u = Columns<S>::Identity(a.rows(), width);
  u.topLeftCorner(n, n) = inner.u;
  u.applyOnTheLeft(factors.householderQ());
  inner.u = std::move(u);
  return inner;
}

template <class T>
struct Svd {
  Svd(const KernelQuery& q, int threads)
      : a(q.inputs[0]), left(q.outputs[0]), right(q.outputs[2]), rank(q.inputs[0].shape.rank()), threads(threads) {}

  void run(const KernelArgs& args) const {
    using M = Columns<Wide<T>>;
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
      const M copy = a.template read<T>(args.inputs[0], i).template cast<Wide<T>>();
      if (!copy.allFinite())
        fail(ErrorKind::kLinAlg,
             "{}The algorithm failed to converge because the input matrix contained non-finite values",
             failed_matrix("linalg.svd", rank, i));
      const bool tall = a.rows >= a.cols;
      const SingularValues<Wide<T>> svd =
          tall ? tall_svd<Wide<T>>(copy, u.cols()) : tall_svd<Wide<T>>(copy.adjoint(), vh.rows());
      values = svd.s.array().template cast<R>();
      u = (tall ? svd.u : svd.v).template cast<T>();
      vh = (tall ? svd.v : svd.u).adjoint().template cast<T>();
      for (int64_t k = 0; k < n; ++k) {
        const T turn = turn_of(u.col(k));
        u.col(k) *= turn;
        vh.row(k) *= Eigen::numext::conj(turn);
      }
    });
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
