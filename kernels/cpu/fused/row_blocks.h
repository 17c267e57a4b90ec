#pragma once
// How the rows of a `fused_rows` op are cut: into blocks, into tiles and runs, and among threads.
#include <algorithm>

#include "kernels/cpu/fused/row_inputs.h"

namespace sluice::cpu {

// Immutable: who computes what depends on the query and the number of threads alone.
//
// Invariants:
// 1. A block of rows goes through all phases before its worker begins the next one, so that it stays in the cache. A
//    long row, which has more elements than a run (kRun), is a block by itself.
// 2. A tile is what steps compute at once. Where they take one row at a time (RowProgram::alone()) it is a part of a
//    row, or all of it; else it is at most a block, and all of a block of several rows.
// 3. Workers share out blocks; or, by pieces, the runs of one long row after the other. None is without any, unless
//    there are no rows.
class RowBlocks {
 public:
  RowBlocks(const RowProgram& program, const RowInputs& inputs, int threads);

  int64_t rows() const { return rows_; }
  int64_t length() const { return long_row_.size; }  // of a row
  bool is_long() const { return is_long_; }
  const LongRow& long_row() const { return long_row_; }  // the parts of a row, if it is long

  int64_t block() const { return block_; }  // rows of it
  int64_t blocks() const { return (rows_ + block_ - 1) / block_; }
  int64_t tile() const { return tile_; }                                   // elements of it
  int64_t tiles_of_row() const { return (length() + tile_ - 1) / tile_; }  // where steps take one row at a time
  int64_t spread_length() const { return std::min(tile_, length()); }      // elements of a row in a tile

  int64_t workers() const { return workers_; }
  bool by_pieces() const { return by_pieces_; }
  int threads() const { return workers_ > 1 ? threads_ : 1; }  // that they run on
  // Blocks [first_block(w), first_block(w + 1)) are worker w's.
  int64_t first_block(int64_t worker) const { return blocks() * worker / workers_; }

  // f(number, part of the row, first element, how many) for each run of a long row.
  template <class F>
  void for_runs(F f) const {
    int64_t number = 0;
    for (int64_t part = 0; part < long_row_.parts; ++part)
      for (int64_t at = long_row_.first(part); at < long_row_.first(part + 1); at += kRun)
        f(number++, part, at, std::min(kRun, long_row_.first(part + 1) - at));
  }

 private:
  void choose_blocks(const RowProgram& program, const RowInputs& inputs);

  const int64_t rows_;
  const LongRow long_row_;
  const bool is_long_;
  const int threads_;
  int64_t tile_ = 0, block_ = 1, workers_ = 1;
  bool by_pieces_ = false;
};

}  // namespace sluice::cpu
