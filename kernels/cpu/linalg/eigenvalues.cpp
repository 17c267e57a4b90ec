// Eigenvalues and eigenvectors of matrices, by Eigen.
#include <Eigen/Eigenvalues>
#include <limits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/linalg/linalg.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

// The i-th row of n elements.
template <class T>
Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>> row_of(void* data, int64_t i, int64_t n) {
  return {static_cast<T*>(data) + i * n, n};
}

template <class T>
struct Eigh {
  Eigh(const KernelQuery& q, int threads)
      : a(q.inputs[0]), threads(threads), part(get_attr<std::string>(q.attrs, "part")) {}

  void run(const KernelArgs& args) const {
    for_each_matrix(threads, a.count, [&](int64_t i) {
      if (a.rows == 0) return;
      auto values = row_of<RealOf<T>>(args.outputs[0], i, a.rows);
      auto vectors = a.template write<T>(args.outputs[1], i);
      const Columns<Wide<T>> s = hermitian<T>(a.template read<T>(args.inputs[0], i), part).template cast<Wide<T>>();
      if (!s.allFinite()) {
        values.setConstant(std::numeric_limits<RealOf<T>>::quiet_NaN());
        vectors.setConstant(std::numeric_limits<RealOf<T>>::quiet_NaN());
        return;
      }
      const Eigen::SelfAdjointEigenSolver<Columns<Wide<T>>> solver(s);
      if (solver.info() != Eigen::Success)
        fail(ErrorKind::kLinAlg,
             "linalg.eigh: (Batch element {}): The algorithm failed to converge because the input matrix is "
             "ill-conditioned or has too many repeated eigenvalues",
             i);
      values = solver.eigenvalues().array().template cast<RealOf<T>>();
      vectors = solver.eigenvectors().template cast<T>();
      for (int64_t k = 0; k < a.rows; ++k) vectors.col(k) *= turn_of(vectors.col(k));
    });
  }

  Matrices a;
  int threads;
  std::string part;
};

template <class T>
struct Eig {
  using Complex = std::complex<RealOf<T>>;
  using Solver = std::conditional_t<Eigen::NumTraits<T>::IsComplex, Eigen::ComplexEigenSolver<Columns<Wide<T>>>,
                                    Eigen::EigenSolver<Columns<Wide<T>>>>;

  Eig(const KernelQuery& q, int threads) : a(q.inputs[0]), threads(threads), rank(q.inputs[0].shape.rank()) {}

  void run(const KernelArgs& args) const {
    for_each_matrix(threads, a.count, [&](int64_t i) {
      if (a.rows == 0) return;
      const Columns<Wide<T>> matrix = a.template read<T>(args.inputs[0], i).template cast<Wide<T>>();
      SLUICE_CHECK_KIND(kRuntime, matrix.allFinite(),
                        "torch.linalg.eig: input tensor should not contain infs or NaNs: they are in matrix {}", i);
      const Solver solver(matrix);
      if (solver.info() != Eigen::Success)
        fail(ErrorKind::kLinAlg,
             "{}The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
             "eigenvalues",
             failed_matrix("linalg.eig", rank, i));
      row_of<Complex>(args.outputs[0], i, a.rows) = solver.eigenvalues().array().template cast<Complex>();
      Columns<std::complex<double>> vectors = solver.eigenvectors();
      for (int64_t k = 0; k < a.rows; ++k) {
        vectors.col(k).normalize();
        vectors.col(k) *= turn_of(vectors.col(k));
      }
      a.template write<Complex>(args.outputs[1], i) = vectors.template cast<Complex>();
    });
  }

  Matrices a;
  int threads, rank;
};

}  // namespace

void add_eigenvalue_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "linalg_eigh", .prepare = prepare_floating<Eigh>});
  table.add(DeviceKind::kCpu, {.op = "linalg_eig", .prepare = prepare_floating<Eig>});
}

}  // namespace sluice::cpu
