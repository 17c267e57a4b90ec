#pragma once
// The compiler puts these around a value that is to lie on the disk between two uses (ADR 81): `spill` writes it to the
// session's file, `fetch` reads it from there. Users have no such ops.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// Both call a function of the session, whose name says what it does, and where: "spill@4096".
namespace spill_attr {
enum { kFunction, kOffset };
}
// (x) -> int64(1,), where it lies: whoever reads that knows that it has been written.
const OpDef& spill_op();
namespace fetch_attr {
enum { kFunction, kOffset, kOutputs };
}
// (int64(1,)) -> x, once that is there.
const OpDef& fetch_op();
inline bool is_spill(const OpDef& op) { return &op == &spill_op() || &op == &fetch_op(); }

std::span<const OpDef* const> spill_ops();

}  // namespace sluice::ops
