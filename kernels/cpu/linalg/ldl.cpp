// Factorizations of symmetric and Hermitian matrices that need not be positive: L D L^T with exchanges of rows and
// columns and blocks of one or two in D, by Bunch and Kaufman's choice of pivots. Laid out as LAPACK's sytrf has it.
#include "kernels/cpu/families.h"
#include "kernels/cpu/linalg/linalg.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

template <class T>
RealOf<T> size_of(T x) {
  if constexpr (Eigen::NumTraits<T>::IsComplex)
    return std::abs(x.real()) + std::abs(x.imag());
  else
    return std::abs(x);
}

// The element that a Hermitian matrix has where a symmetric one has x.
template <class T>
T turned(T x, bool hermitian) {
  return hermitian ? Eigen::numext::conj(x) : x;
}

// The lower triangle of A becomes L and D.
template <class T>
struct LdlFactors {
  Columns<T>& a;
  int32_t* pivots;  // of a block of one its row, from 1; of a block of two minus its second one's, twice
  bool hermitian;

  // The number of the first block that is zero (from 1), else 0.
  int32_t run() {
    const int64_t n = a.rows();
    int32_t info = 0;
    for (int64_t k = 0; k < n;) {
      const RealOf<T> here = diagonal(k);
      int64_t most = k;
      RealOf<T> column = 0;
      for (int64_t i = k + 1; i < n; ++i)
        if (size_of(a(i, k)) > column) column = size_of(a(most = i, k));
      int64_t step = 1, pivot = k;
      const bool none = std::max(here, column) == 0 || std::isnan(here);
      if (none && info == 0) info = static_cast<int32_t>(k + 1);
      if (!none) choose(k, here, most, column, pivot, step);
      if (pivot != k + step - 1) exchange(k, pivot, step);
      if (hermitian)
        for (int64_t i = k; i < k + step; ++i) a(i, i) = std::real(a(i, i));
      if (!none) step == 1 ? eliminate_one(k) : eliminate_two(k);
      for (int64_t i = k; i < k + step; ++i) pivots[i] = static_cast<int32_t>(step == 1 ? pivot + 1 : -(pivot + 1));
      k += step;
    }
    a.template triangularView<Eigen::StrictlyUpper>().setZero();
    return info;
  }

 private:
  RealOf<T> diagonal(int64_t k) const { return hermitian ? std::abs(std::real(a(k, k))) : size_of(a(k, k)); }

  void choose(int64_t k, RealOf<T> here, int64_t most, RealOf<T> column, int64_t& pivot, int64_t& step) const {
    const RealOf<T> bound = (1 + std::sqrt(RealOf<T>(17))) / 8;  // growth is least so
    if (here >= bound * column) return;
    RealOf<T> row = 0;
    for (int64_t j = k; j < most; ++j) row = std::max(row, size_of(a(most, j)));
    for (int64_t i = most + 1; i < a.rows(); ++i) row = std::max(row, size_of(a(i, most)));
    if (here >= bound * column * (column / row)) return;
    pivot = most;
    if (!(diagonal(most) >= bound * row)) step = 2;
  }

  // Rows and columns kk and pivot, of the lower triangle.
  void exchange(int64_t k, int64_t pivot, int64_t step) {
    const int64_t kk = k + step - 1, below = a.rows() - pivot - 1;
    a.col(kk).tail(below).swap(a.col(pivot).tail(below));
    for (int64_t j = kk + 1; j < pivot; ++j) {
      const T x = turned(a(j, kk), hermitian);
      a(j, kk) = turned(a(pivot, j), hermitian);
      a(pivot, j) = x;
    }
    a(pivot, kk) = turned(a(pivot, kk), hermitian);
    std::swap(a(kk, kk), a(pivot, pivot));
    if (step == 2) std::swap(a(k + 1, k), a(pivot, k));
  }

  void eliminate_one(int64_t k) {
    const int64_t rest = a.rows() - k - 1;
    const T scale = T(1) / a(k, k);
    for (int64_t j = k + 1; j < a.rows(); ++j) {
      const int64_t from = a.rows() - j;
      a.col(j).tail(from) -= (scale * turned(a(j, k), hermitian)) * a.col(k).tail(from);
      if (hermitian) a(j, j) = std::real(a(j, j));
    }
    a.col(k).tail(rest) *= scale;
  }

  void eliminate_two(int64_t k) {
    const T corner = a(k + 1, k);
    // The inverse of the block, over a common divisor that does not overflow.
    const T d11 = a(k + 1, k + 1) / corner, d22 = a(k, k) / turned(corner, hermitian);
    const T t = T(1) / (d11 * d22 - T(1));
    for (int64_t j = k + 2; j < a.rows(); ++j) {
      const T x = a(j, k), y = a(j, k + 1);
      const T first = t * (d11 * x - y) / turned(corner, hermitian), second = t * (d22 * y - x) / corner;
      const int64_t from = a.rows() - j;
      a.col(j).tail(from) -= turned(first, hermitian) * a.col(k).tail(from);
      a.col(j).tail(from) -= turned(second, hermitian) * a.col(k + 1).tail(from);
      a(j, k) = first;
      a(j, k + 1) = second;
      if (hermitian) a(j, j) = std::real(a(j, j));
    }
  }
};

template <class T>
struct Ldl {
  Ldl(const KernelQuery& q, int threads)
      : a(q.inputs[0]),
        threads(threads),
        rank(q.inputs[0].shape.rank()),
        hermitian(get_attr<bool>(q.attrs, "hermitian")),
        caller(get_attr<std::string>(q.attrs, "caller")) {}

  void run(const KernelArgs& args) const {
    auto *pivots = static_cast<int32_t*>(args.outputs[1]), *info = static_cast<int32_t*>(args.outputs[2]);
    for_each_matrix(threads, a.count, [&](int64_t i) {
      Columns<T> factors = a.template read<T>(args.inputs[0], i);
      info[i] = LdlFactors<T>{factors, pivots + i * a.rows, hermitian}.run();
      a.template write<T>(args.outputs[0], i) = factors;
    });
    for (int64_t i = 0; i < a.count && !caller.empty(); ++i)
      if (info[i] != 0)
        fail(ErrorKind::kLinAlg,
             "{}D[{},{}] is zero, so that ldl_solve would divide by zero; call linalg.ldl_factor_ex() to factorize the "
             "matrix all the same",
             failed_matrix(caller, rank, i), info[i], info[i]);
  }

  Matrices a;
  int threads, rank;
  bool hermitian;
  std::string caller;
};

// X with A X = B, of A's factors: L, then D, then L^T.
template <class T>
struct LdlSolve {
  LdlSolve(const KernelQuery& q, int threads)
      : a(q.inputs[0]), b(q.inputs[2]), threads(threads), hermitian(get_attr<bool>(q.attrs, "hermitian")) {}

  void run(const KernelArgs& args) const {
    for_each_matrix(threads, a.count, [&](int64_t i) {
      const auto factors = a.template read<T>(args.inputs[0], i);
      const int32_t* pivots = static_cast<const int32_t*>(args.inputs[1]) + i * a.rows;
      auto x = b.template write<T>(args.outputs[0], i);
      x = b.template read<T>(args.inputs[2], i);
      forward(factors, pivots, x);
      backward(factors, pivots, x);
    });
  }

 private:
  // The row that a pivot names.
  int64_t row_of(int32_t pivot) const {
    const int64_t row = std::abs(static_cast<int64_t>(pivot)) - 1;
    SLUICE_CHECK_KIND(kRuntime, row >= 0 && row < a.rows,
                      "linalg.ldl_solve: a pivot is {}; it must be a row of the {} from 1 on, or minus one", pivot,
                      a.rows);
    return row;
  }
  bool is_pair(const int32_t* pivots, int64_t first) const { return pivots[first] < 0 && first + 1 < a.rows; }

  template <class A, class X>
  void forward(const A& l, const int32_t* pivots, X& x) const {
    const int64_t n = a.rows;
    for (int64_t k = 0; k < n;) {
      const int64_t step = is_pair(pivots, k) ? 2 : 1, last = k + step - 1, rest = n - last - 1;
      if (const int64_t row = row_of(pivots[k]); row != last) x.row(last).swap(x.row(row));
      for (int64_t j = k; j <= last; ++j) x.bottomRows(rest) -= l.col(j).tail(rest) * x.row(j);
      if (step == 1) {
        x.row(k) /= l(k, k);
      } else {
        const T corner = l(k + 1, k), other = turned(corner, hermitian);
        const T first = l(k, k) / other, second = l(k + 1, k + 1) / corner, divisor = first * second - T(1);
        for (int64_t c = 0; c < x.cols(); ++c) {
          const T p = x(k, c) / other, q = x(k + 1, c) / corner;
          x(k, c) = (second * p - q) / divisor;
          x(k + 1, c) = (first * q - p) / divisor;
        }
      }
      k += step;
    }
  }

  template <class A, class X>
  void backward(const A& l, const int32_t* pivots, X& x) const {
    const int64_t n = a.rows;
    for (int64_t last = n - 1; last >= 0;) {
      const int64_t step = pivots[last] < 0 && last > 0 ? 2 : 1, rest = n - last - 1;
      for (int64_t j = last; j > last - step; --j) {
        const auto column = l.col(j).tail(rest);
        if (hermitian)
          x.row(j) -= column.adjoint() * x.bottomRows(rest);
        else
          x.row(j) -= column.transpose() * x.bottomRows(rest);
      }
      if (const int64_t row = row_of(pivots[last]); row != last) x.row(last).swap(x.row(row));
      last -= step;
    }
  }

  Matrices a, b;
  int threads;
  bool hermitian;
};

}  // namespace

void add_ldl_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "linalg_ldl", .prepare = prepare_floating<Ldl>});
  table.add(DeviceKind::kCpu, {.op = "linalg_ldl_solve", .prepare = prepare_floating<LdlSolve>});
}

}  // namespace sluice::cpu
