#pragma once
// The places of the values of a loop's body: in the loop's own operands or in its workspace.
//
// Invariants
//  1. A state lies in the loop's output all along; a turn's new state is written over it as soon as nobody needs it.
//  2. A buffer is not written over before its last reader is done.
#include <cstdint>
#include <memory>
#include <vector>

#include "base/attr.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

struct LoopPlace {
  enum class Base : uint8_t { kNone, kInput, kOutput, kWorkspace };
  Base base = Base::kNone;  // kNone: an absent operand
  int index = 0;            // of the operand
  uint64_t offset = 0;      // bytes
  uint64_t row = 0;         // bytes from one row to the next, of what each turn has another of
};

struct LoopCopy {
  LoopPlace from, to;
  TensorSpec as;  // how it is read; written contiguous
};

struct LoopCall {
  std::unique_ptr<PreparedKernel> kernel;
  std::vector<LoopPlace> inputs, outputs;
  LoopPlace workspace;
  bool branches = false;                     // KernelDef::branches
  std::vector<int> read = {}, written = {};  // numbers of values, whose memory it looks at; -1: an absent operand
};

struct LoopLayout {
  int states = 0, rows = 0;
  int64_t length = 0;  // -1: as long as the first state is true
  bool reverse = false;
  std::vector<uint64_t> state_bytes;
  std::vector<LoopCall> calls;
  std::vector<LoopCopy> before, after;  // of each turn, in order
  std::vector<int> given;               // per output: the number of the value
  size_t values = 0;
  uint64_t workspace_bytes = 0;
};

// Prepares the kernels of op "loop". Throws Error where there is none.
LoopLayout lay_out_loop(const plan::KernelQuery& query, const PrepareContext& context);

}  // namespace sluice::cpu
