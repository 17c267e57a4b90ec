// Factorizations that solve systems: LU, Cholesky, triangular matrices. Blocks of kBlock columns are factorized one by
// one, and Eigen multiplies what is left of the matrix. Sums do not depend on the number of threads.
#include "kernels/cpu/linalg/linalg.h"

#include "kernels/cpu/families.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

constexpr int64_t kBlock = 32;

// How large a pivot is; of complex numbers as LAPACK has it.
template <class T>
T pivot_size(T x) {
  return std::abs(x);
}
template <class T>
T pivot_size(std::complex<T> x) {
  return std::abs(x.real()) + std::abs(x.imag());
}

// A becomes its factors L (below the diagonal, where it has ones) and U, rows exchanged: row k with pivots[k] (from 1).
// The number of the first column without a pivot (from 1), 0 where all have one.
template <class M>
int32_t factorize_lu(M&& a, int32_t* pivots) {
  using T = typename std::decay_t<M>::Scalar;
  const int64_t rows = a.rows(), cols = a.cols(), rank = std::min(rows, cols);
  int32_t info = 0;
  for (int64_t begin = 0; begin < rank; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, rank), width = end - begin, rest = cols - end;
    for (int64_t k = begin; k < end; ++k) {
      int64_t pivot = k;
      for (int64_t i = k + 1; i < rows; ++i)
        if (pivot_size(a(i, k)) > pivot_size(a(pivot, k))) pivot = i;
      pivots[k] = static_cast<int32_t>(pivot + 1);
      if (a(pivot, k) == T(0)) {
        if (info == 0) info = static_cast<int32_t>(k + 1);
        continue;
      }
      if (pivot != k) a.row(k).swap(a.row(pivot));
      const int64_t below = rows - k - 1, right = end - k - 1;
      a.col(k).tail(below) /= a(k, k);
      a.block(k + 1, k + 1, below, right).noalias() -= a.col(k).tail(below) * a.row(k).segment(k + 1, right);
    }
    if (rest == 0) break;
    auto upper = a.block(begin, end, width, rest);
    a.block(begin, begin, width, width).template triangularView<Eigen::UnitLower>().solveInPlace(upper);
    a.block(end, end, rows - end, rest).noalias() -= a.block(end, begin, rows - end, width) * upper;
  }
  return info;
}

// A, of which the lower triangle is read, becomes L; the order of the first leading minor that is not positive, else 0.
template <class M>
int32_t factorize_cholesky(M& a) {
  using T = typename M::Scalar;
  const int64_t n = a.rows();
  int32_t info = 0;
  for (int64_t begin = 0; begin < n && info == 0; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n), width = end - begin, rest = n - end;
    for (int64_t k = begin; k < end; ++k) {
      const RealOf<T> square = std::real(a(k, k)) - a.row(k).segment(begin, k - begin).squaredNorm();
      if (!(square > 0)) {
        info = static_cast<int32_t>(k + 1);
        break;
      }
      a(k, k) = std::sqrt(square);
      const int64_t below = end - k - 1, left = k - begin;
      auto column = a.col(k).segment(k + 1, below);
      column.noalias() -= a.block(k + 1, begin, below, left) * a.row(k).segment(begin, left).adjoint();
      column /= a(k, k);
    }
    if (rest == 0 || info != 0) break;
    auto lower = a.block(end, begin, rest, width);
    a.block(begin, begin, width, width)
        .template triangularView<Eigen::Lower>()
        .adjoint()
        .template solveInPlace<Eigen::OnTheRight>(lower);
    a.block(end, end, rest, rest).template selfadjointView<Eigen::Lower>().rankUpdate(lower, T(-1));
  }
  a.template triangularView<Eigen::StrictlyUpper>().setZero();
  return info;
}

template <class T>
struct Cholesky {
  Cholesky(const KernelQuery& q, int threads)
      : a(q.inputs[0]),
        threads(threads),
        rank(q.inputs[0].shape.rank()),
        part(get_attr<std::string>(q.attrs, "part")),
        caller(get_attr<std::string>(q.attrs, "caller")) {}

  void run(const KernelArgs& args) const {
    auto* info = static_cast<int32_t*>(args.outputs[1]);
    for_each_matrix(threads, a.count, [&](int64_t i) {
      Columns<T> factor = hermitian<T>(a.template read<T>(args.inputs[0], i), part);
      info[i] = factorize_cholesky(factor);
      a.template write<T>(args.outputs[0], i) = factor;
    });
    for (int64_t i = 0; i < a.count && !caller.empty(); ++i)
      if (info[i] != 0)
        fail(ErrorKind::kLinAlg,
             "{}The factorization could not be completed because the input is not positive-definite (the leading "
             "minor of order {} is not positive-definite)",
             failed_matrix(caller, rank, i), info[i]);
  }

  Matrices a;
  int threads, rank;
  std::string part, caller;
};

template <class T>
struct Lu {
  Lu(const KernelQuery& q, int threads)
      : a(q.inputs[0]),
        threads(threads),
        rank(q.inputs[0].shape.rank()),
        caller(get_attr<std::string>(q.attrs, "caller")) {}

  void run(const KernelArgs& args) const {
    auto *pivots = static_cast<int32_t*>(args.outputs[1]), *info = static_cast<int32_t*>(args.outputs[2]);
    for_each_matrix(threads, a.count, [&](int64_t i) {
      auto factors = a.template write<T>(args.outputs[0], i);
      factors = a.template read<T>(args.inputs[0], i);
      info[i] = factorize_lu(factors, pivots + i * std::min(a.rows, a.cols));
    });
    for (int64_t i = 0; i < a.count && !caller.empty(); ++i)
      if (info[i] != 0)
        fail(ErrorKind::kLinAlg,
             "{}U[{},{}] is zero and using it on lu_solve would result in a division by zero; call linalg.lu() or "
             "linalg.lu_factor_ex() to factorize it all the same",
             failed_matrix(caller, rank, i), info[i], info[i]);
  }

  Matrices a;
  int threads, rank;
  std::string caller;
};

template <class T>
struct Solve {
  Solve(const KernelQuery& q, int threads)
      : a(q.inputs[0]),
        b(q.inputs[1]),
        threads(threads),
        rank(q.inputs[0].shape.rank()),
        caller(get_attr<std::string>(q.attrs, "caller")) {}

  void run(const KernelArgs& args) const {
    auto* info = static_cast<int32_t*>(args.outputs[1]);
    for_each_matrix(threads, a.count, [&](int64_t i) {
      Matrix<T> factors = a.template read<T>(args.inputs[0], i);
      std::vector<int32_t> pivots(a.rows);
      info[i] = factorize_lu(factors, pivots.data());
      auto x = b.template write<T>(args.outputs[0], i);
      x = b.template read<T>(args.inputs[1], i);
      if (x.size() == 0) return;
      for (int64_t k = 0; k < a.rows; ++k)
        if (pivots[k] != k + 1) x.row(k).swap(x.row(pivots[k] - 1));
      factors.template triangularView<Eigen::UnitLower>().solveInPlace(x);
      factors.template triangularView<Eigen::Upper>().solveInPlace(x);
    });
    for (int64_t i = 0; i < a.count && !caller.empty(); ++i) {
      if (info[i] == 0) continue;
      const std::string where = failed_matrix(caller, rank, i);
      SLUICE_CHECK_KIND(kLinAlg, caller.find("inv") == std::string::npos,
                        "{}The diagonal element {} is zero, the inversion could not be completed because the input "
                        "matrix is singular",
                        where, info[i]);
      fail(ErrorKind::kLinAlg, "{}The solver failed because the input matrix is singular", where);
    }
  }

  Matrices a, b;
  int threads, rank;
  std::string caller;
};

template <class T>
struct SolveTriangular {
  SolveTriangular(const KernelQuery& q, int threads)
      : a(q.inputs[0]),
        b(q.inputs[1]),
        threads(threads),
        upper(get_attr<bool>(q.attrs, "upper")),
        transpose(get_attr<bool>(q.attrs, "transpose")),
        unit(get_attr<bool>(q.attrs, "unitriangular")) {}

  void run(const KernelArgs& args) const {
    for_each_matrix(threads, a.count, [&](int64_t i) {
      const auto m = a.template read<T>(args.inputs[0], i);
      auto x = b.template write<T>(args.outputs[0], i);
      x = b.template read<T>(args.inputs[1], i);
      if (x.size() == 0) return;
      if (transpose)
        solve(m.transpose(), !upper, x);
      else
        solve(m, upper, x);
    });
  }

  template <class A, class X>
  void solve(const A& m, bool of_upper, X& x) const {
    if (of_upper && unit)
      m.template triangularView<Eigen::UnitUpper>().solveInPlace(x);
    else if (of_upper)
      m.template triangularView<Eigen::Upper>().solveInPlace(x);
    else if (unit)
      m.template triangularView<Eigen::UnitLower>().solveInPlace(x);
    else
      m.template triangularView<Eigen::Lower>().solveInPlace(x);
  }

  Matrices a, b;
  int threads;
  bool upper, transpose, unit;
};

// The row of the matrix that each exchange of rows, one after the other, has brought to each place.
std::unique_ptr<PreparedKernel> prepare_permutation(const KernelQuery& q, const PrepareContext&) {
  const int r = q.inputs[0].shape.rank();
  const int64_t exchanges = q.inputs[0].shape[r - 1], n = q.outputs[0].shape[r - 1];
  const int64_t count = n == 0 ? 0 : numel(q.outputs[0].shape) / n;
  return make_kernel(0, [=](const KernelArgs& args) {
    const auto* pivots = static_cast<const int32_t*>(args.inputs[0]);
    auto* order = static_cast<int64_t*>(args.outputs[0]);
    for (int64_t i = 0; i < count; ++i, pivots += exchanges, order += n) {
      for (int64_t k = 0; k < n; ++k) order[k] = k;
      for (int64_t k = 0; k < exchanges; ++k) {
        SLUICE_CHECK_KIND(kRuntime, pivots[k] >= 1 && pivots[k] <= n,
                          "linalg_permutation: Pivots given to lu_solve must all be greater or equal to 1 and at most "
                          "the number of rows: got {}; must be in [1, {}]",
                          pivots[k], n);
        std::swap(order[k], order[pivots[k] - 1]);
      }
    }
  });
}

}  // namespace

void add_linalg_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "linalg_cholesky", .prepare = prepare_floating<Cholesky>});
  table.add(DeviceKind::kCpu, {.op = "linalg_lu", .prepare = prepare_floating<Lu>});
  table.add(DeviceKind::kCpu, {.op = "linalg_permutation", .prepare = prepare_permutation});
  table.add(DeviceKind::kCpu, {.op = "linalg_solve", .prepare = prepare_floating<Solve>});
  table.add(DeviceKind::kCpu, {.op = "linalg_solve_triangular", .prepare = prepare_floating<SolveTriangular>});
}

}  // namespace sluice::cpu
