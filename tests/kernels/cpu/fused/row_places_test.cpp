// Where values of rows are: inputs as the operands have them, and what has memory of its own shares it with nobody.
#include "kernels/cpu/fused/row_places.h"

#include <gtest/gtest.h>

#include "kernels/cpu/fused/row_parts.h"

namespace sluice {
namespace {

using cpu::RowFrame;
using Home = cpu::RowProgram::Home;

constexpr size_t kX = 0, kLine = 1, kRow = 2;

// Operands in which each element has a value of its own, and a workspace with guards around it.
class PlacedRows {
 public:
  explicit PlacedRows(const RowPartsCase& c) : query_(c.query()), parts(query_, c.alone, c.threads) {
    double start = 0;
    for (const TensorSpec& spec : query_.inputs) {
      tensors_.emplace_back(spec, ramp(numel(spec.shape), start, 1));
      start += static_cast<double>(numel(spec.shape));
    }
    for (const TensorSpec& spec : query_.outputs) tensors_.emplace_back(spec);
    for (size_t i = 0; i < query_.inputs.size(); ++i) in_.push_back(tensors_[i].data());
    for (size_t i = 0; i < query_.outputs.size(); ++i) out_.push_back(tensors_[in_.size() + i].data());
    bytes_.assign(parts.places.workspace_bytes() + 3 * kGuard, kUntouched);
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    args_ = {.inputs = in_.data(), .outputs = out_.data(), .workspace = reinterpret_cast<void*>(align_up(at, kGuard))};
  }
  PlacedRows(const PlacedRows&) = delete;
  PlacedRows& operator=(const PlacedRows&) = delete;

  const KernelArgs& args() const { return args_; }
  std::vector<double> values(size_t input) const { return tensors_[input].read(); }
  std::vector<double> result(size_t output) const { return tensors_[in_.size() + output].read(); }
  bool in_workspace(const char* address) const {
    const auto* const begin = static_cast<const char*>(args_.workspace);
    return address >= begin && address < begin + parts.places.workspace_bytes();
  }
  bool within_bounds() const {
    const auto begin = static_cast<size_t>(static_cast<unsigned char*>(args_.workspace) - bytes_.data());
    for (size_t i = 0; i < bytes_.size(); ++i)
      if ((i < begin || i >= begin + parts.places.workspace_bytes()) && bytes_[i] != kUntouched) return false;
    return std::all_of(tensors_.begin(), tensors_.end(), [](const TestTensor& t) { return t.intact(); });
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kUntouched = 0x5d;
  const plan::KernelQuery query_;
  std::vector<TestTensor> tensors_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<unsigned char> bytes_;
  KernelArgs args_;

 public:
  const RowParts parts;
};

float& at(char* address, int64_t element = 0) { return reinterpret_cast<float*>(address)[element]; }

// Holds the inputs of a block that was entered against the operands. Returns how many elements differ.
int64_t wrong_inputs(const PlacedRows& rows, const RowFrame& frame, const std::vector<double>& x,
                     const std::vector<double>& line, const std::vector<double>& row) {
  const cpu::RowPlaces& places = rows.parts.places;
  const cpu::RowBlocks& blocks = rows.parts.blocks;
  const int64_t length = blocks.length();
  int64_t wrong = 0;
  for (int64_t r = 0; r < frame.rows; ++r) {
    const int64_t of_x = (frame.first_row + r) * length;
    const auto check = [&](int64_t run, int64_t n) {
      for (int64_t e = run; e < run + n; ++e) {
        wrong += at(places.address(frame, kX, r, e, run)) != static_cast<float>(x[static_cast<size_t>(of_x + e)]);
        wrong += at(places.address(frame, kLine, r, e, run)) != static_cast<float>(line[static_cast<size_t>(e)]);
      }
    };
    if (blocks.is_long()) {
      blocks.for_runs([&](int64_t, int64_t, int64_t run, int64_t n) {
        for (const auto& phase : rows.parts.program.phases()) places.move_run(phase, frame, run, n);
        check(run, n);
      });
    } else {
      check(0, length);
    }
    const float own = static_cast<float>(row[static_cast<size_t>(frame.first_row + r)]);
    if (rows.parts.program.alone()) {
      wrong += at(places.row_value(frame, kRow, r)) != own;
    } else {  // spread, so that an element of each row stands for it
      for (int64_t e = 0; e < length; ++e) wrong += at(places.row_value(frame, kRow, 0), r * length + e) != own;
    }
  }
  return wrong;
}

TEST(RowPlaces, ReadInputsAsTheyLie) {
  for (const RowPartsCase& c : row_parts_cases()) {
    const PlacedRows rows(c);
    const cpu::RowBlocks& blocks = rows.parts.blocks;
    const std::vector<double> x = rows.values(kX), line = rows.values(kLine), row = rows.values(kRow);
    const int64_t step = blocks.by_pieces() ? 1 : blocks.block();
    for (int64_t worker = 0; worker < (c.rows == 0 ? 0 : blocks.workers()); ++worker) {
      RowFrame frame = rows.parts.places.begin(rows.args(), worker);
      for (int64_t first = 0; first < c.rows; first += step) {
        rows.parts.places.enter(frame, first, std::min(step, c.rows - first));
        for (size_t p = 0; p < rows.parts.program.phases().size(); ++p) rows.parts.places.spread_fresh(p, frame);
        ASSERT_EQ(wrong_inputs(rows, frame, x, line, row), 0) << c.str() << ", from row " << first;
      }
    }
    EXPECT_TRUE(rows.within_bounds()) << c.str();
  }
}

// What has memory of its own in a frame: an address, and elements.
struct Extent {
  char* begin;
  int64_t elements;
};

// The memory that a worker writes in a block. Those of `shared` are the same for all workers by pieces.
void add_extents(const PlacedRows& rows, const RowFrame& frame, std::vector<Extent>& shared,
                 std::vector<Extent>& local) {
  const auto& values = rows.parts.program.values();
  const cpu::RowBlocks& blocks = rows.parts.blocks;
  const int64_t length = blocks.length();
  for (size_t v = 0; v < values.size(); ++v) {
    const bool own = values[v].home == Home::kRow || values[v].home == Home::kKept || values[v].home == Home::kOutput;
    if (own && values[v].lender < 0) shared.push_back({frame.at[v], frame.rows * (values[v].row ? 1 : length)});
    if (values[v].home == Home::kInput && rows.in_workspace(rows.parts.places.address(frame, v, 0, 0, 0))) {
      const bool by_runs = blocks.is_long() && !values[v].row;  // brought together for a run
      (by_runs ? local : shared)
          .push_back({rows.parts.places.address(frame, v, 0, 0, 0),
                      by_runs ? cpu::kRun : frame.rows * (values[v].row ? 1 : length)});
    }
    if (values[v].home == Home::kRun)
      local.push_back(
          {rows.parts.places.address(frame, v, 0, 0, 0), blocks.is_long() ? cpu::kRun : frame.rows * length});
    if (values[v].row && values[v].in_elements && !rows.parts.program.alone())
      shared.push_back({rows.parts.places.row_value(frame, v, 0), frame.rows * blocks.spread_length()});
  }
  local.push_back({rows.parts.places.scratch(frame), rows.parts.program.scratch_per_element() / 4 * blocks.tile()});
}

TEST(RowPlaces, GiveEachValueMemoryOfItsOwn) {
  int64_t extents_seen = 0;
  for (const RowPartsCase& c : row_parts_cases()) {
    if (c.rows == 0) continue;
    const PlacedRows rows(c);
    const cpu::RowPlaces& places = rows.parts.places;
    const cpu::RowBlocks& blocks = rows.parts.blocks;
    std::vector<Extent> extents;
    if (blocks.by_pieces()) {
      RowFrame frame = places.begin(rows.args(), 0);
      places.enter(frame, 0, 1);
      std::vector<Extent> again;
      for (int64_t worker = 0; worker < blocks.workers(); ++worker)
        add_extents(rows, places.for_worker(frame, worker), worker == 0 ? extents : again, extents);
    } else {
      for (int64_t worker = 0; worker < blocks.workers(); ++worker) {
        RowFrame frame = places.begin(rows.args(), worker);
        const int64_t first = blocks.first_block(worker) * blocks.block();
        places.enter(frame, first, std::min(blocks.block(), c.rows - first));
        add_extents(rows, frame, extents, extents);
      }
    }
    for (size_t i = 0; i < extents.size(); ++i) std::fill_n(&at(extents[i].begin), extents[i].elements, i + 1.0F);
    for (size_t i = 0; i < extents.size(); ++i) {
      const float* const begin = &at(extents[i].begin);
      EXPECT_TRUE(std::all_of(begin, begin + extents[i].elements, [&](float f) { return f == i + 1.0F; }))
          << c.str() << ", extent " << i << " of " << extents.size();
    }
    EXPECT_TRUE(rows.within_bounds()) << c.str();
    extents_seen += static_cast<int64_t>(extents.size());
  }
  EXPECT_GT(extents_seen, 500);
}

TEST(RowPlaces, LendAKeptValueTheMemoryOfTheResultThatIsWrittenLast) {
  const PlacedRows rows({9, 1000, true, 1, false});
  RowFrame frame = rows.parts.places.begin(rows.args(), 0);
  rows.parts.places.enter(frame, 0, rows.parts.blocks.block());
  const auto& values = rows.parts.program.values();
  int lent = 0;
  for (size_t v = 0; v < values.size(); ++v) {
    if (values[v].lender < 0) continue;
    ++lent;
    EXPECT_EQ(values[v].home, Home::kKept);
    EXPECT_EQ(frame.at[v], frame.at[static_cast<size_t>(values[v].lender)]);
    EXPECT_EQ(frame.at[v], static_cast<char*>(rows.args().outputs[0]));
  }
  EXPECT_EQ(lent, 1);
}

// Entries of reductions of long rows: one for each part, for each reduction of a phase.
TEST(RowPlaces, GiveEachPartOfALongRowEntries) {
  const PlacedRows rows({3, 140000, true, 2, false});
  const cpu::RowPlaces& places = rows.parts.places;
  const cpu::LongRow& row = rows.parts.blocks.long_row();
  const RowFrame frame = places.begin(rows.args(), 0);
  ASSERT_GT(row.parts, 1);
  const auto bytes = cpu::RowFold::entry_bytes(row);
  for (int64_t part = 0; part < row.parts; ++part) {
    EXPECT_EQ(places.entries(frame, 0, part) - places.entries(frame, 0, 0), part * bytes);
    EXPECT_EQ(places.entries(frame, 1, part) - places.entries(frame, 0, part), row.parts * bytes);
  }
  const char* const end = static_cast<const char*>(rows.args().workspace) + places.workspace_bytes();
  EXPECT_LE(places.entries(frame, 1, row.parts - 1) + bytes, end);
}

}  // namespace
}  // namespace sluice
