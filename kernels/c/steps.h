#pragma once
// Steps of bodies, which ops have alone, too.
#include <string>
#include <vector>

#include "base/attr.h"
#include "kernels/c/printer.h"

namespace sluice::c {

// A step on values v0, v1, ...: its text, the condition under which it has none and the error then, and its dtype.
struct Step {
  std::string value, bad;
  int error = 0;
  DType dtype;
};
Step step(const std::string& op, const NamedAttrs& attrs, const std::vector<std::string>& values,
          const std::vector<DType>& dtypes, Shared& shared);
// A step of a body whose values have these dtypes: it is rounded as if it were stored.
Step rounded_step(const AttrCall& call, const std::vector<DType>& dtypes, Shared& shared);
// Adds a value made by a step, and returns its name.
std::string define(Lines& lines, size_t number, const Step& made);

// Says how a reduction takes each element: its first value, and how `a` goes on with `v`. A mean is a sum at first.
struct Fold {
  std::string begin, next;
};
Fold fold_of(const std::string& op, DType dtype, Shared& shared);

// Sums of products: their type, in which integers of up to 32 bits have 32, and how `a` goes on with `v` and `w`.
// Integers wrap, as they do on the cpu.
const char* sum_type(DType dtype);
std::string product_sum(DType dtype);

}  // namespace sluice::c
