#pragma once
// Helpers that kernels of linear algebra share: matrices of a batch as Eigen's, errors of one of them.
#define EIGEN_DONT_PARALLELIZE  // the matrices of a batch are shared out instead
#include <Eigen/Core>
#include <complex>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "base/error.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
#include "plan/query.h"

namespace sluice::cpu {

// Rows lie one behind the other, as contiguous tensors have them.
template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
// The temporaries that Eigen's factorizations work in.
template <class T>
using Columns = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;

// The type of the parts of a complex T, else T.
template <class T>
using RealOf = typename Eigen::NumTraits<T>::Real;
// The type in which factorizations of matrices of T are computed: Eigen's take long to compile for each type.
template <class T>
using Wide = std::conditional_t<Eigen::NumTraits<T>::IsComplex, std::complex<double>, double>;

// The last two dims of an operand as matrices, and how many there are.
struct Matrices {
  explicit Matrices(const TensorSpec& spec) {
    const int r = spec.shape.rank();
    rows = spec.shape[r - 2];
    cols = spec.shape[r - 1];
    for (int i = 0; i + 2 < r; ++i) count *= spec.shape[i];
  }
  template <class T>
  Eigen::Map<const Matrix<T>> read(const void* data, int64_t i) const {
    return {static_cast<const T*>(data) + i * rows * cols, rows, cols};
  }
  template <class T>
  Eigen::Map<Matrix<T>> write(void* data, int64_t i) const {
    return {static_cast<T*>(data) + i * rows * cols, rows, cols};
  }
  int64_t rows = 0, cols = 0, count = 1;
};

// f(i) for every matrix of a batch; what it throws (memory that Eigen has not) is thrown here.
template <class F>
void for_each_matrix(int threads, int64_t count, F f) {
  std::exception_ptr failure;
  std::mutex mutex;
  parallel_ranges(threads, count, 1, [&](int64_t begin, int64_t end) {
    try {
      for (int64_t i = begin; i < end; ++i) f(i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

// The kernel of an op that is a template struct of the operands' floating type: made of the query, run on pointers.
template <template <class> class Kernel>
std::unique_ptr<PreparedKernel> prepare_floating(const plan::KernelQuery& q, const PrepareContext& context) {
  const auto make = [&](auto kernel) { return make_kernel(0, [kernel](const KernelArgs& args) { kernel.run(args); }); };
  const int threads = q.inputs[0].shape.rank() > 2 ? context.threads : 1;
  switch (q.inputs[0].dtype) {
    case DType::kFloat32: return make(Kernel<float>(q, threads));
    case DType::kFloat64: return make(Kernel<double>(q, threads));
    case DType::kComplex64: return make(Kernel<std::complex<float>>(q, threads));
    case DType::kComplex128: return make(Kernel<std::complex<double>>(q, threads));
    default:
      fail(ErrorKind::kUnsupported, "{}: no kernel for dtype {}; must be float32, float64, complex64 or complex128",
           q.op, dtype_name(q.inputs[0].dtype));
  }
}

// "linalg.inv: " or, of a batch, "linalg.inv: (Batch element 2): ".
inline std::string failed_matrix(const std::string& caller, int rank, int64_t i) {
  return rank > 2 ? fmt::format("{}: (Batch element {}): ", caller, i) : caller + ": ";
}

// The factor for a vector that is determined up to its sign or argument: it makes the largest entry positive.
template <class Vector>
auto turn_of(const Vector& v) {
  using T = typename Vector::Scalar;
  Eigen::Index at = 0;
  const auto largest = v.cwiseAbs().maxCoeff(&at);
  if constexpr (Eigen::NumTraits<T>::IsComplex)
    return largest > 0 ? T(std::conj(v(at)) / largest) : T(1);
  else
    return v(at) < 0 ? T(-1) : T(1);
}

// The Hermitian matrix of which `a` has one triangle ("lower", "upper") or both, of which it is the mean.
template <class T>
Columns<T> hermitian(const Eigen::Map<const Matrix<T>>& a, const std::string& part) {
  if (part == "both") return (a + a.adjoint()) / T(2);
  Columns<T> s = a;
  if (part == "lower")
    s.template triangularView<Eigen::StrictlyUpper>() = a.adjoint();
  else
    s.template triangularView<Eigen::StrictlyLower>() = a.adjoint();
  s.diagonal() = s.diagonal().real().template cast<T>();
  return s;
}

}  // namespace sluice::cpu
