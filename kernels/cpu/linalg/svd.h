#pragma once
#include <optional>

#include "kernels/cpu/linalg/linalg.h"

namespace sluice::cpu {

// a = U diag(s) V^H.
template <class S>
struct SingularValues {
  Columns<S> u;
  Eigen::VectorXd s;
  Columns<S> v;
};

// The SVD of a square matrix, by Eigen's divide and conquer; nothing where that lost some values.
std::optional<SingularValues<double>> divide_and_conquer(const Columns<double>& a);

}  // namespace sluice::cpu
