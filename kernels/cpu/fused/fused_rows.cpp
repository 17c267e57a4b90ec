// Rows through elementwise steps and reductions as one kernel. A block of short rows, or a piece of a long one, is in
// the cache from the first phase to the last; of rows longer than that, what a later phase reads is kept in the
// workspace.
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/fused/row_places.h"
#include "kernels/cpu/generated/rows_kernel.h"
#include "kernels/cpu/strides/tile_walk.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kShortRows = 192;      // elements of rows that steps take several of at a time
constexpr int64_t kFarBytes = 12 << 20;  // operands of more do not stay in caches

using Home = RowProgram::Home;

// Runs the phases of the program over blocks of rows. `blocks_` says how these are cut, and `places_` where the values
// of a block are.
class FusedRows final : public PreparedKernel {
 public:
  FusedRows(const plan::KernelQuery& q, const RowLines& rows, RowProgram program, int threads)
      : program_(std::move(program)),
        inputs_(q, rows),
        blocks_(program_, inputs_, threads),
        places_(program_, inputs_, blocks_) {
    workspace_bytes_ = places_.workspace_bytes();
    uint64_t bytes = 0;
    for (const auto* specs : {&q.inputs, &q.outputs})
      for (const TensorSpec& spec : *specs) bytes += spec.extent_bytes();
    if (!program_.alone() || blocks_.is_long() || program_.heavy() || static_cast<int64_t>(bytes) <= kFarBytes) return;
    for (const RowProgram::Phase& phase : program_.phases())
      if (phase.elements) shares_ += blocks_.block() * blocks_.tiles_of_row();
  }

  void run(const KernelArgs& args) const override {
    if (blocks_.rows() == 0) return;
    std::atomic<int> error{0};
    if (blocks_.by_pieces()) {
      run_pieces(args, error);
    } else {
      parallel_ranges(blocks_.threads(), blocks_.workers(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t worker = begin; worker < end; ++worker) run_blocks(args, worker, error);
      });
    }
    const int e = error.load(std::memory_order_relaxed);
    SLUICE_CHECK_KIND(kRuntime, e == 0, "{}", program_.error_text(e));
  }

 private:
  // A worker's block, and how many shares of its next one are under way.
  struct Block {
    RowFrame frame;
    int64_t shares = INT64_MAX;
  };

  void run_blocks(const KernelArgs& args, int64_t worker, std::atomic<int>& error) const {
    Block block{places_.begin(args, worker)};
    const int64_t end = blocks_.first_block(worker + 1);
    for (int64_t number = blocks_.first_block(worker); number < end; ++number) {
      const int64_t first = number * blocks_.block();
      places_.enter(block.frame, first, std::min(blocks_.block(), blocks_.rows() - first));
      block.shares = number + 1 < end ? 0 : INT64_MAX;
      for (size_t p = 0; p < program_.phases().size(); ++p) {
        start_phase(p, block.frame, error);
        if (blocks_.is_long()) {
          blocks_.for_runs(
              [&](int64_t, int64_t part, int64_t at, int64_t n) { run_piece(p, block, part, at, n, error); });
          finish_phase(p, block.frame);
        } else {
          run_short_rows(p, block, error);
        }
      }
    }
  }

  void run_short_rows(size_t p, Block& block, std::atomic<int>& error) const {
    const RowFrame& frame = block.frame;
    const int64_t length = blocks_.length();
    if (program_.alone())
      for (int64_t row = 0; row < frame.rows; ++row) run_elements(p, block, row, 0, length, error);
    else
      run_elements(p, block, 0, 0, frame.rows * length, error);
    for (const RowProgram::Reduction& r : program_.phases()[p].reductions)
      r.fold->rows(frame.at[static_cast<size_t>(r.from)], length, frame.rows, frame.at[static_cast<size_t>(r.to)]);
  }

  // One row after the other, of which threads take runs.
  void run_pieces(const KernelArgs& args, std::atomic<int>& error) const {
    const int64_t workers = blocks_.workers();
    int64_t runs = 0;
    blocks_.for_runs([&](int64_t, int64_t, int64_t, int64_t) { ++runs; });
    RowFrame frame = places_.begin(args, 0);
    for (int64_t row = 0; row < blocks_.rows(); ++row) {
      places_.enter(frame, row, 1);
      for (size_t p = 0; p < program_.phases().size(); ++p) {
        start_phase(p, frame, error);
        parallel_ranges(blocks_.threads(), workers, 1, [&](int64_t begin_worker, int64_t end_worker) {
          for (int64_t worker = begin_worker; worker < end_worker; ++worker) {
            Block mine{places_.for_worker(frame, worker)};
            blocks_.for_runs([&](int64_t number, int64_t part, int64_t at, int64_t n) {
              // Each worker has a fixed share of the runs, so results do not depend on the number of threads.
              if (number >= runs * worker / workers && number < runs * (worker + 1) / workers)
                run_piece(p, mine, part, at, n, error);
            });
          }
        });
        finish_phase(p, frame);
      }
    }
  }

  // Steps of rows, and their results spread over what elements are computed with.
  void start_phase(size_t p, RowFrame& frame, std::atomic<int>& error) const {
    const RowProgram::Phase& phase = program_.phases()[p];
    if (phase.rows) {
      std::array<const void*, RowProgram::kMostValues> in;
      std::array<void*, RowProgram::kMostValues> out;
      const auto& [program, inputs, outputs] = *phase.rows;
      for (size_t k = 0; k < inputs.size(); ++k) in[k] = frame.at[static_cast<size_t>(inputs[k])];
      for (size_t k = 0; k < outputs.size(); ++k) out[k] = frame.at[static_cast<size_t>(outputs[k])];
      call(p, true, program, {in.data(), out.data(), nullptr, 0, frame.rows, places_.scratch(frame), blocks_.block()},
           error);
      for (size_t k = 0; k < outputs.size(); ++k) {
        const auto v = static_cast<size_t>(outputs[k]);
        if (out[k] != frame.at[v])
          std::memcpy(frame.at[v], out[k], static_cast<size_t>(frame.rows * program_.values()[v].size()));
      }
    }
    places_.spread_fresh(p, frame);
  }

  void finish_phase(size_t p, RowFrame& frame) const {
    const auto& reductions = program_.phases()[p].reductions;
    for (size_t k = 0; k < reductions.size(); ++k)
      reductions[k].fold->finish(blocks_.long_row(), places_.entries(frame, k, 0),
                                 frame.at[static_cast<size_t>(reductions[k].to)]);
  }

  // Elements [at, at + n) of a long row.
  void run_piece(size_t p, Block& block, int64_t part, int64_t at, int64_t n, std::atomic<int>& error) const {
    run_elements(p, block, 0, at, n, error);
    const auto& reductions = program_.phases()[p].reductions;
    for (size_t k = 0; k < reductions.size(); ++k)
      reductions[k].fold->run(places_.address(block.frame, static_cast<size_t>(reductions[k].from), 0, at, at), n,
                              at - blocks_.long_row().first(part), places_.entries(block.frame, k, part));
  }

  // Elements [first, first + n) of a row; or, where steps take several rows at once, those of a block.
  void run_elements(size_t p, Block& block, int64_t row, int64_t first, int64_t n, std::atomic<int>& error) const {
    const RowProgram::Phase& phase = program_.phases()[p];
    const RowFrame& frame = block.frame;
    if (blocks_.is_long()) places_.move_run(phase, frame, first, n);
    if (!phase.elements) return;
    const auto& [program, inputs, outputs] = *phase.elements;
    const auto& values = program_.values();
    const int64_t tile = blocks_.tile();
    std::array<const void*, RowProgram::kMostValues> in;
    std::array<void*, RowProgram::kMostValues> out, to;
    std::array<const void*, RowProgram::kMostValues> states;
    for (int64_t at = first; at < first + n; at += tile) {
      const int64_t m = std::min(tile, first + n - at);
      // Light steps do not hide that they wait for memory: what the next block needs is to be near by then.
      if (block.shares < shares_) places_.fetch_next(frame, block.shares++, shares_);
      for (size_t k = 0; k < inputs.size(); ++k) {
        const auto v = static_cast<size_t>(inputs[k]);
        if (values[v].home == Home::kState)
          in[k] = states[k] = frame.at[v];
        else
          in[k] = values[v].row ? places_.row_value(frame, v, row) : places_.address(frame, v, row, at, first);
      }
      for (size_t k = 0; k < outputs.size(); ++k)
        out[k] = to[k] = places_.address(frame, static_cast<size_t>(outputs[k]), row, at, first);
      call(p, false, program,
           {in.data(), out.data(), states.data(), (frame.first_row + row) * blocks_.length() + at, m,
            places_.scratch(frame), tile},
           error);
      for (size_t k = 0; k < outputs.size(); ++k) {
        const int64_t size = values[static_cast<size_t>(outputs[k])].size();
        if (out[k] != to[k]) std::memcpy(to[k], out[k], static_cast<size_t>(m * size));
      }
    }
  }

  void call(size_t p, bool rows, const FusedProgram& program, const FusedProgram::Piece& piece,
            std::atomic<int>& error) const {
    const int e = program.run(piece);
    if (e != 0) error.store(RowProgram::error_in(static_cast<int>(p), rows, e), std::memory_order_relaxed);
  }

  const RowProgram program_;
  const RowInputs inputs_;
  const RowBlocks blocks_;
  const RowPlaces places_;
  int64_t shares_ = 0;  // in which the next block is fetched, one a tile; 0: it is not
};

std::unique_ptr<PreparedKernel> prepare_fused_rows(const plan::KernelQuery& q, const PrepareContext& context) {
  SLUICE_CHECK_KIND(kUnsupported, q.inputs.size() <= kMostFusedInputs, "fused_rows: {} inputs; must be at most {}",
                    q.inputs.size(), kMostFusedInputs);
  RowLines rows(q);
  std::vector<DType> dtypes;
  std::vector<bool> repeats;
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    const Line& line = rows.lines[i];
    SLUICE_CHECK_KIND(
        kUnsupported, rows.states[i] || (line.is_line && (line.repeats || line.length == rows.length())),
        "fused_rows: an operand of {} with strides {}: has no rows of {} elements in lines; lay it out so",
        q.inputs[i].shape.str(), q.inputs[i].strides.str(), rows.length());
    dtypes.push_back(q.inputs[i].dtype);
    repeats.push_back(rows.states[i] || line.repeats);
  }
  const AttrGraph& body = get_attr<AttrGraph>(q.attrs, "body");
  RowProgram program(body, dtypes, repeats, rows.length() > kShortRows);
  for (size_t k = 0; k < q.outputs.size(); ++k) {
    const RowProgram::Value& value = program.values()[static_cast<size_t>(body.outputs[k])];
    SLUICE_CHECK(value.dtype == q.outputs[k].dtype, "fused_rows: body gives {}; its output is of {}",
                 dtype_name(value.dtype), dtype_name(q.outputs[k].dtype));
  }
  auto usual = std::make_unique<FusedRows>(q, rows, std::move(program), context.threads);
  return generated::prepare_rows(q, context.threads, std::move(usual));
}

plan::LayoutPreference fused_rows_layouts(const plan::KernelQuery& q) { return RowLines(q).layouts(q.outputs.size()); }

}  // namespace

void add_fused_rows_kernel(KernelTable& table) {
  table.add(
      DeviceKind::kCpu,
      {.op = "fused_rows", .prepare = prepare_fused_rows, .layouts = fused_rows_layouts, .source = generated::text_of});
}

}  // namespace sluice::cpu
