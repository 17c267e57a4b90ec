#include "kernels/cpu/fused/row_blocks.h"

#include "kernels/cpu/strides/tile_walk.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRowTile = 1024;       // elements that steps take at a time
constexpr int64_t kTileScratch = 32768;  // bytes of what passes between them, which stay in the first-level cache
constexpr int64_t kRowBytes = 24576;     // of rows that go through all phases together, though steps take one at a time
constexpr int64_t kManyRows = 16;        // fewer long ones are shared out in pieces

using Home = RowProgram::Home;

// The bytes that are read and written for an element of a row. If rows do not follow each other it is more than any
// row has.
int64_t bytes_of_rows(const RowProgram& program, const RowInputs& inputs) {
  int64_t bytes = 0;
  for (const RowProgram::Value& value : program.values()) {
    if (value.row || value.home == Home::kPassing || value.home == Home::kState) continue;
    const bool same = value.home == Home::kInput && inputs.same(value.index);
    if (value.home == Home::kInput && (same ? value.folded : !inputs.follow(value.index))) return kRowBytes;
    bytes += same ? 0 : value.size();
  }
  return bytes;
}

}  // namespace

RowBlocks::RowBlocks(const RowProgram& program, const RowInputs& inputs, int threads)
    : rows_(inputs.rows()),
      long_row_{inputs.length(), parts_of_lines(rows_, inputs.length())},
      is_long_(inputs.length() > kRun),
      threads_(threads) {
  choose_blocks(program, inputs);
  const int64_t grain = program.heavy() ? kHeavyGrain : kLightGrain / 4;
  workers_ = threads_ > 1 && rows_ * length() >= 2 * grain ? threads_ : 1;
  by_pieces_ = is_long_ && rows_ < kManyRows && workers_ > 1;
  if (!by_pieces_) workers_ = std::clamp<int64_t>(blocks(), 1, workers_);
}

void RowBlocks::choose_blocks(const RowProgram& program, const RowInputs& inputs) {
  const int64_t fits = kTileScratch / std::max<int64_t>(program.scratch_per_element(), 1);
  tile_ = std::clamp<int64_t>(fits / kFoldLanes * kFoldLanes, kFoldLanes,
                              program.random() ? kTile : kRowTile);  // random steps take no more than a tile
  const int64_t most = std::max<int64_t>(rows_, 1), own = length(), length = std::max<int64_t>(own, 1);
  block_ = program.alone() && !is_long_
               ? std::clamp<int64_t>(kRowBytes / (length * std::max<int64_t>(bytes_of_rows(program, inputs), 1)), 1,
                                     (most - 1) / threads_ + 1)
               : std::clamp<int64_t>(tile_ / length, 1, most);
  if (block_ > 1 && !program.alone()) {
    tile_ = block_ * own;
  } else if (!is_long_ && own > tile_) {  // pieces of about the same size
    const int64_t pieces = (own + tile_ - 1) / tile_;
    tile_ = std::min(tile_, ((own + pieces - 1) / pieces + kFoldLanes - 1) / kFoldLanes * kFoldLanes);
  }
}

}  // namespace sluice::cpu
