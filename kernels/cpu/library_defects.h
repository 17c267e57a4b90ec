#pragma once
// Known defects of the libraries that kernels are made of, in one table: for which convolutions each shows, and what is
// done instead. Kernels ask it before they choose an implementation; nothing else knows of a defect.
#include <span>

#include "kernels/cpu/onednn_conv.h"

namespace sluice::cpu {

enum class Instead : uint8_t {
  kFloat32,     // bfloat16 operands are converted, and the result back
  kUnitStride,  // the pixels that windows of one element read are first copied to an image of their own
};

struct LibraryDefect {
  const char* library;
  const char* op;
  const char* implementation;  // how its name begins; "": of all
  const char* versions;        // in which it was seen
  int fixed_in;                // 100 * major + minor of the first version without it; kNotFixed: none is known
  const char* what;
  const char* when;  // in words what `shows` decides
  bool (*shows)(const ConvOperands& operands, const ConvGeometry& geometry);
  Instead instead;
};
inline constexpr int kNotFixed = 1 << 30;

std::span<const LibraryDefect> library_defects();

// Whether the library that is here has a defect, in the op that computes `result`, for which that is done instead.
bool needs(Instead instead, ConvRole result, const ConvOperands& operands, const ConvGeometry& geometry);

}  // namespace sluice::cpu
