#pragma once
// The body of a `fused_rows` op as C++: a function for rows, whose phases are loops over a row that stays in the cache,
// with what they compute in registers. Each step is rounded as if it were stored, and each reduction adds in the order
// of the op by itself, so that the bits are those of the ops.
#include <cstdint>
#include <string>

#include "plan/target.h"

namespace sluice::generated {

// Inputs, outputs, space for one thread, and which rows.
using RowsFunction = void (*)(const void* const* in, void* const* out, void* space, int64_t begin, int64_t end);
inline constexpr const char* kRowsFunction = "rows";

struct RowSource {
  std::string text;          // "": the query is none of those that have one
  uint64_t space_bytes = 0;  // of one thread
  int64_t rows = 0, length = 0;
  bool heavy = false;
};

// The source for rows of more than 128 and at most 4,096 elements, of float32 and bool.
RowSource row_source(const plan::KernelQuery& query);

}  // namespace sluice::generated
