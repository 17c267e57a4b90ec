// How rows are cut: every element is computed once, in pieces that fit.
#include "kernels/cpu/fused/row_blocks.h"

#include "kernels/cpu/fused/row_parts.h"
#include "kernels/cpu/strides/tiles.h"

namespace sluice {
namespace {

TEST(RowBlocks, GiveEachBlockToOneWorker) {
  for (const RowPartsCase& c : row_parts_cases()) {
    const RowParts parts(c.query(), c.alone, c.threads);
    const cpu::RowBlocks& blocks = parts.blocks;
    ASSERT_EQ(blocks.rows(), c.rows) << c.str();
    ASSERT_EQ(blocks.length(), c.length) << c.str();
    EXPECT_GE(blocks.blocks() * blocks.block(), c.rows) << c.str();
    EXPECT_LT((blocks.blocks() - 1) * blocks.block(), std::max<int64_t>(c.rows, 1)) << c.str();
    EXPECT_GE(blocks.workers(), 1) << c.str();
    EXPECT_LE(blocks.workers(), c.threads) << c.str();
    EXPECT_EQ(blocks.threads(), blocks.workers() > 1 ? c.threads : 1) << c.str();
    EXPECT_EQ(blocks.first_block(0), 0) << c.str();
    EXPECT_EQ(blocks.first_block(blocks.workers()), blocks.blocks()) << c.str();
    for (int64_t w = 0; w < blocks.workers() && c.rows > 0 && !blocks.by_pieces(); ++w)
      EXPECT_LT(blocks.first_block(w), blocks.first_block(w + 1)) << c.str() << ", worker " << w;
  }
}

TEST(RowBlocks, GiveALongRowRunsThatFollowEachOther) {
  int longs = 0, by_pieces = 0;
  for (const RowPartsCase& c : row_parts_cases()) {
    const RowParts parts(c.query(), c.alone, c.threads);
    EXPECT_EQ(parts.blocks.is_long(), c.length > cpu::kRun) << c.str();
    by_pieces += parts.blocks.by_pieces();
    if (!parts.blocks.is_long()) {
      EXPECT_FALSE(parts.blocks.by_pieces()) << c.str();
      continue;
    }
    ++longs;
    EXPECT_EQ(parts.blocks.block(), 1) << c.str();
    int64_t next = 0, count = 0, last_part = 0;
    parts.blocks.for_runs([&](int64_t number, int64_t part, int64_t at, int64_t n) {
      EXPECT_EQ(number, count++) << c.str();
      EXPECT_EQ(at, next) << c.str();
      EXPECT_TRUE(part == last_part || part == last_part + 1) << c.str();
      EXPECT_GE(at, parts.blocks.long_row().first(part)) << c.str();
      EXPECT_LE(at + n, parts.blocks.long_row().first(part + 1)) << c.str();
      EXPECT_TRUE(n > 0 && n <= cpu::kRun) << c.str();
      next = at + n;
      last_part = part;
    });
    EXPECT_EQ(next, c.length) << c.str();
  }
  EXPECT_GT(longs, 0);
  EXPECT_GT(by_pieces, 0);
  EXPECT_LT(by_pieces, longs);
}

TEST(RowBlocks, GiveStepsTilesWithinARowOrWholeBlocks) {
  int several = 0;
  for (const RowPartsCase& c : row_parts_cases()) {
    const RowParts parts(c.query(), c.alone, c.threads);
    const cpu::RowBlocks& blocks = parts.blocks;
    EXPECT_GE(blocks.block(), 1) << c.str();
    EXPECT_GE(blocks.tile(), 1) << c.str();
    EXPECT_LE(blocks.spread_length(), c.length) << c.str();
    if (!c.alone && blocks.block() > 1) {
      ++several;
      EXPECT_EQ(blocks.tile(), blocks.block() * c.length) << c.str();
    } else if (c.alone) {
      EXPECT_GE(blocks.tiles_of_row() * blocks.tile(), c.length) << c.str();
      EXPECT_LT((blocks.tiles_of_row() - 1) * blocks.tile(), c.length) << c.str();
    }
  }
  EXPECT_GT(several, 0);
}

// Rows of a block that lie apart would each fetch lines of memory that they share with others.
TEST(RowBlocks, TakeRowsTogetherOnlyWhereTheyFollowEachOther) {
  const auto block = [](bool apart) {
    const RowPartsCase c{300, 600, true, 1, apart};
    return RowParts(c.query(), c.alone, c.threads).blocks.block();
  };
  EXPECT_GT(block(false), 1);
  EXPECT_EQ(block(true), 1);
}

}  // namespace
}  // namespace sluice
