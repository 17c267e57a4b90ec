#pragma once
// Known defects of the libraries that kernels are made of, in one table: for which operands each shows, and what is
// done instead. Kernels ask it before they choose an implementation; nothing else knows of a defect.
#include <span>

#include "kernels/cpu/onednn/onednn_conv.h"

namespace sluice::cpu {

enum class Instead : uint8_t {
  kFloat32,     // bfloat16 operands are converted, and the result back
  kUnitStride,  // the pixels that windows of one element read are first copied to an image of their own
  kDense,       // the operand is first copied, so that its elements are neighbours
  kOwnSum,      // the residual is added in a pass of ours, not by the library as it computes
  kLoops,       // the library is not asked: the loops compute it
};

struct LibraryDefect {
  const char* library;
  const char* op;
  const char* implementation;  // how its name begins; "": of all
  const char* versions;        // in which it was seen
  int since, fixed_in;  // 100 * major + minor of the first version with it, and without; kNotFixed: none is known
  const char* what;
  const char* when;  // in words what the functions decide, of which there is one
  Instead instead;
  bool (*of_conv)(const ConvOperands& operands, const ConvGeometry& geometry);
  bool (*of_matrix)(const TensorSpec& matrix) = nullptr;  // of a product's first operand
};
inline constexpr int kNotFixed = 1 << 30;

std::span<const LibraryDefect> library_defects();

// Whether the library that is here has a defect, in the op that computes `result`, for which that is done instead.
bool needs(Instead instead, ConvRole result, const ConvOperands& operands, const ConvGeometry& geometry);
// The same of products whose first operand is `matrix`, or a batch of matrices.
bool needs(Instead instead, const TensorSpec& matrix);

}  // namespace sluice::cpu
