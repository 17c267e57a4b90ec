#pragma once
// How the partial results of a reduction become one: sums and products of floats in double, of integers in int64.
#include <complex>
#include <limits>
#include <type_traits>

#include "kernels/cpu/reduction/folds.h"

namespace sluice::cpu {

// T: what tiles have.
template <class T>
struct Joins {
  using Total = std::conditional_t<kIsComplex<T>, std::complex<double>,
                                   std::conditional_t<std::is_same_v<T, int64_t>, int64_t, double>>;

  ReductionKind kind;

  // The value that joins with anything and leaves it as it is.
  Total identity() const {
    if constexpr (kIsComplex<T>)
      return kind == ReductionKind::kProd ? 1.0 : 0.0;
    else
      return number_identity();
  }

  Total join(Total a, Total b) const {
    switch (kind) {
      case ReductionKind::kSum:
      case ReductionKind::kMean:
      case ReductionKind::kSquares: return joined<ReductionKind::kSum>(a, b);
      case ReductionKind::kProd: return joined<ReductionKind::kProd>(a, b);
      case ReductionKind::kMax:
      case ReductionKind::kAny: return joined<ReductionKind::kMax>(a, b);
      case ReductionKind::kMin:
      case ReductionKind::kAll: return joined<ReductionKind::kMin>(a, b);
    }
    return a;
  }

  // totals[i] joined with values[i].
  void join_all(Total* totals, const T* values, int64_t n) const {
    const auto each = [&](auto one) {
      for (int64_t i = 0; i < n; ++i)
        totals[i] = joined<decltype(one)::value>(totals[i], static_cast<Total>(values[i]));
    };
    using Kind = ReductionKind;
    switch (kind) {
      case Kind::kSum:
      case Kind::kMean:
      case Kind::kSquares: return each(std::integral_constant<Kind, Kind::kSum>());
      case Kind::kProd: return each(std::integral_constant<Kind, Kind::kProd>());
      case Kind::kMax:
      case Kind::kAny: return each(std::integral_constant<Kind, Kind::kMax>());
      case Kind::kMin:
      case Kind::kAll: return each(std::integral_constant<Kind, Kind::kMin>());
    }
  }

  // The result of `size` elements whose total this is.
  T result(Total total, int64_t size) const {
    using Scale = std::conditional_t<kIsComplex<T>, double, Total>;
    return static_cast<T>(kind == ReductionKind::kMean ? total / static_cast<Scale>(size) : total);
  }

 private:
  template <class N = Total>
  N number_identity() const {
    constexpr bool kFloating = std::is_same_v<N, double>;
    constexpr N kLow = kFloating ? -std::numeric_limits<N>::infinity() : std::numeric_limits<N>::lowest();
    constexpr N kHigh = kFloating ? std::numeric_limits<N>::infinity() : std::numeric_limits<N>::max();
    switch (kind) {
      case ReductionKind::kSum:
      case ReductionKind::kMean:
      case ReductionKind::kSquares:
      case ReductionKind::kAny: return 0;
      case ReductionKind::kProd:
      case ReductionKind::kAll: return 1;
      case ReductionKind::kMax: return kLow;
      case ReductionKind::kMin: return kHigh;
    }
    return 0;
  }
};

}  // namespace sluice::cpu
