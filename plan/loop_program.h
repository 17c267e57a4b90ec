#pragma once
// The instructions that the attribute `program` of op "loop" may hold beside calls of kernels.

namespace sluice::plan {

// A call of this, with the attribute `offset` (bytes), is a view: its one result lies in the memory of its one operand,
// which is an input or what a kernel gives.
inline constexpr const char* kWindow = "window";

}  // namespace sluice::plan
