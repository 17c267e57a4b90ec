#pragma once
// Where the values of a `fused_rows` op are while a block of rows is computed.
#include <array>
#include <vector>

#include "kernels/cpu/fused/row_blocks.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

// A block under way, of one worker. `at`: where the values of a row begin, or of a run, where the value is in pieces.
struct RowFrame {
  std::array<char*, RowProgram::kMostValues> at;
  char* shared;  // memory of the block
  char* local;   // and of a run of it
  const KernelArgs* args;
  int64_t first_row, rows;
};

// Immutable, so that threads may share it; each has frames of its own. REQUIRES: what it is made of outlives it.
//
// Invariants:
// 1. The workspace is shared memory, one for each block that is under way, and behind it the local memory of each
//    worker. There is one block by pieces, whose workers compute runs of it, and else one for each worker.
// 2. These have a place of their own: values that are kept and not lent one, values of rows that are no output, inputs
//    that are repeated or brought together, and, in local memory, values of runs. The others are read and written in
//    the operands, or pass from step to step.
// 3. What every row reads alike is in its place from begin() on; outputs, inputs that move on from row to row, and what
//    has a place lent are so from enter() on.
// 4. A value of rows that steps of several rows read is spread over a tile once in each block, ahead of the first phase
//    that reads it; what every row reads alike is spread by begin().
class RowPlaces {
 public:
  RowPlaces(const RowProgram& program, const RowInputs& inputs, const RowBlocks& blocks);

  uint64_t workspace_bytes() const { return workspace_bytes_; }

  // The frame of a worker, `by pieces` of the one block, and what all its blocks read alike. REQUIRES: there are rows.
  RowFrame begin(const KernelArgs& args, int64_t worker) const;
  // The frame for another worker's runs of the same block.
  RowFrame for_worker(const RowFrame& frame, int64_t worker) const;
  // The block's rows: where their values are, or, of inputs that lie apart, brought there.
  void enter(RowFrame& frame, int64_t first_row, int64_t rows) const;
  // Spreads the values of rows that phase `p` is the first to read.
  void spread_fresh(size_t p, const RowFrame& frame) const;
  // Brings the inputs of a phase together whose elements lie apart, for a run of a long row.
  void move_run(const RowProgram::Phase& phase, const RowFrame& frame, int64_t first, int64_t n) const;
  // Fetches share number `share` of `shares` of what the block behind this one reads and writes.
  void fetch_next(const RowFrame& frame, int64_t share, int64_t shares) const;

  // The address of element `element` of the block's row number `row`, where the run begins with element `run`.
  char* address(const RowFrame& frame, size_t v, int64_t row, int64_t element, int64_t run) const {
    const RowProgram::Value& value = program_.values()[v];
    if (moves_by_runs(v)) return frame.local + place_[v] + (element - run) * value.size();
    return frame.at[v] + row * row_step_[v] +
           (element - (value.home == RowProgram::Home::kRun ? run : 0)) * value.size();
  }
  // A value of rows, as steps of elements take it.
  char* row_value(const RowFrame& frame, size_t v, int64_t row) const {
    return spread_[v] >= 0 ? frame.shared + spread_[v] : frame.at[v] + row * row_step_[v];
  }
  // What a reduction has made of the runs of a part.
  char* entries(const RowFrame& frame, size_t reduction, int64_t part) const {
    return frame.shared + entries_ +
           (static_cast<int64_t>(reduction) * blocks_.long_row().parts + part) *
               RowFold::entry_bytes(blocks_.long_row());
  }
  char* scratch(const RowFrame& frame) const { return frame.local + scratch_; }  // of steps

 private:
  // The way in which the elements of an input are read.
  enum class Access : uint8_t {
    kDirect,  // rows follow each other, or there is one of them
    kSame,    // every row reads the same: repeated once
    kMoved    // brought together
  };
  Access access_of(int input) const;
  void place_values();
  void list_values();
  void list_fresh();
  bool moves_by_runs(size_t v) const { return access_[v] == Access::kMoved && blocks_.is_long(); }
  bool is_local(size_t v) const;
  bool is_in_place(size_t v) const;
  void load(size_t v, const char* from, int64_t n, char* to) const;
  void bring(size_t v, const char* from, int64_t r, const RowFrame& frame) const;

  const RowProgram& program_;
  const RowInputs& inputs_;
  const RowBlocks& blocks_;
  std::vector<Access> access_;                        // of values that are inputs of elements
  std::vector<size_t> outputs_, moving_, borrowers_;  // values that are elsewhere for each block; moving_: inputs
  std::vector<int64_t> row_step_;                     // of values: bytes from a row to the block's next one
  std::vector<int64_t> place_;                        // of values: in the block's memory or a run's; -1: has none there
  std::vector<int64_t> spread_;          // of values of rows: where each stands for all elements of its row; or -1
  std::vector<std::vector<int>> fresh_;  // by phase: which values of rows it is the first to spread
  int64_t entries_ = 0, scratch_ = 0, shared_bytes_ = 0, local_bytes_ = 0;
  uint64_t workspace_bytes_ = 0;
};

}  // namespace sluice::cpu
