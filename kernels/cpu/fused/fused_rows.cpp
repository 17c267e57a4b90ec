// Rows through elementwise steps and reductions as one kernel. A block of short rows, or a piece of a long one, is in
// the cache from the first phase to the last; of rows longer than that, what a later phase reads is kept in the
// workspace.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/generated/rows_kernel.h"
#include "kernels/cpu/rows/row_lines.h"
#include "kernels/cpu/rows/row_program.h"
#include "kernels/cpu/strides/spread.h"
#include "kernels/cpu/strides/streamed_copy.h"
#include "kernels/cpu/strides/tile_walk.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRowTile = 1024;       // elements that steps take at a time
constexpr int64_t kTileScratch = 32768;  // bytes of what passes between them, which stay in the first-level cache
constexpr int64_t kRowBytes = 24576;     // of rows that go through all phases together, though steps take one at a time
constexpr int64_t kShortRows = 192;      // elements of rows that steps take several of at a time
constexpr int64_t kFarBytes = 12 << 20;  // operands of more do not stay in caches
constexpr int64_t kManyRows = 16;        // fewer long ones are shared out in pieces

using Home = RowProgram::Home;

class FusedRows final : public PreparedKernel {
 public:
  FusedRows(const plan::KernelQuery& q, RowLines rows, RowProgram program, int threads)
      : program_(std::move(program)),
        lines_(std::move(rows.lines)),
        nest_(rows.rows(q)),
        threads_(threads),
        rows_(nest_.size()),
        length_(rows.length()),
        row_{length_, parts_of_lines(rows_, length_)},
        is_long_(length_ > kRun) {
    choose_blocks();
    const int64_t grain = program_.heavy() ? kHeavyGrain : kLightGrain / 4;
    workers_ = threads_ > 1 && rows_ * length_ >= 2 * grain ? threads_ : 1;
    by_pieces_ = is_long_ && rows_ < kManyRows && workers_ > 1;
    if (!by_pieces_) workers_ = std::clamp<int64_t>((rows_ + block_ - 1) / block_, 1, workers_);
    uint64_t bytes = 0;
    for (const auto* specs : {&q.inputs, &q.outputs})
      for (const TensorSpec& spec : *specs) bytes += spec.extent_bytes();
    lay_out();
    ahead_ = program_.alone() && !is_long_ && !program_.heavy() && static_cast<int64_t>(bytes) > kFarBytes;
    for (const RowProgram::Phase& phase : program_.phases())
      if (ahead_ && phase.elements) shares_ += block_ * ((length_ + tile_ - 1) / tile_);
  }

  void run(const KernelArgs& args) const override {
    if (rows_ == 0) return;
    std::atomic<int> error{0};
    if (by_pieces_) {
      run_pieces(args, error);
    } else {
      const int64_t blocks = (rows_ + block_ - 1) / block_;
      parallel_ranges(threads_of(), workers_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t worker = begin; worker < end; ++worker)
          run_blocks(args, worker, blocks * worker / workers_, blocks * (worker + 1) / workers_, error);
      });
    }
    const int e = error.load(std::memory_order_relaxed);
    SLUICE_CHECK_KIND(kRuntime, e == 0, "{}", program_.error_text(e));
  }

 private:
  // The addresses of a block's values: a row's elements begin there, or those of a run, where the value is in pieces.
  struct Frame {
    std::array<char*, RowProgram::kMostValues> at;
    char* shared;  // of the block
    char* local;   // of who works on a run of it
    const KernelArgs* args;
    int64_t first_row, rows;
    mutable int64_t shares;  // of the next block that are under way
  };
  // The way in which the elements of an input are read.
  enum class Access : uint8_t {
    kDirect,  // rows follow each other, or there is one of them
    kSame,    // every row reads the same: repeated once
    kMoved    // brought together
  };

  void choose_blocks() {
    const int64_t fits = kTileScratch / std::max<int64_t>(program_.scratch_per_element(), 1);
    tile_ = std::clamp<int64_t>(fits / kFoldLanes * kFoldLanes, kFoldLanes,
                                program_.random() ? kTile : kRowTile);  // random steps take no more than a tile
    const int64_t most = std::max<int64_t>(rows_, 1), length = std::max<int64_t>(length_, 1);
    block_ = program_.alone() && !is_long_
                 ? std::clamp<int64_t>(kRowBytes / (length * std::max<int64_t>(bytes_of_rows(), 1)), 1,
                                       (most - 1) / threads_ + 1)
                 : std::clamp<int64_t>(tile_ / length, 1, most);
    if (block_ > 1 && !program_.alone()) {
      tile_ = block_ * length_;
    } else if (!is_long_ && length_ > tile_) {  // pieces of about the same size
      const int64_t pieces = (length_ + tile_ - 1) / tile_;
      tile_ = std::min(tile_, ((length_ + pieces - 1) / pieces + kFoldLanes - 1) / kFoldLanes * kFoldLanes);
    }
  }

  // The bytes that are read and written for an element of a row. If rows do not follow each other it is more
  // than any row has.
  int64_t bytes_of_rows() const {
    int64_t bytes = 0;
    for (size_t v = 0; v < program_.values().size(); ++v) {
      const RowProgram::Value& value = program_.values()[v];
      if (value.row || value.home == Home::kPassing || value.home == Home::kState) continue;
      const bool same = value.home == Home::kInput && is_same(value.index);
      if (value.home == Home::kInput && (same ? value.folded : !follows(value.index))) return kRowBytes;
      bytes += same ? 0 : value.size();
    }
    return bytes;
  }
  bool is_same(int input) const { return rows_are_same(nest_, input); }
  bool follows(int input) const {
    return rows_follow(nest_, input, length_) && lines_[static_cast<size_t>(input)].step == 1;
  }
  Access access_of(int input) const {
    const int64_t step = lines_[static_cast<size_t>(input)].step;
    if (block_ == 1) return step == 1 || length_ == 0 ? Access::kDirect : Access::kMoved;
    if (is_same(input)) return program_.alone() && step == 1 ? Access::kDirect : Access::kSame;
    return follows(input) ? Access::kDirect : Access::kMoved;
  }
  int64_t spread_length() const { return std::min(tile_, length_); }

  // Gives each value that needs one its place in a block's memory, or in that of a run.
  void lay_out() {
    const auto& values = program_.values();
    const int64_t whole = is_long_ ? length_ : block_ * length_, run = is_long_ ? kRun : whole;
    // A long row is computed in runs, which several threads share where there are few rows. `shared` is memory for the
    // whole row, or for a block of short rows; `local` is for one run of one thread.
    WorkspaceLayout shared, local;
    place_.assign(values.size(), -1);
    spread_.assign(values.size(), -1);
    access_.assign(values.size(), Access::kDirect);
    for (size_t v = 0; v < values.size(); ++v) {
      const RowProgram::Value& value = values[v];
      const auto add = [&](WorkspaceLayout& to, int64_t n) {
        return static_cast<int64_t>(to.add(static_cast<uint64_t>(n * value.size())));
      };
      // A value of each row has an element per row of the block. Where steps of elements read it, it is spread over as
      // many elements as a tile has, so that their loops see operands of one length.
      if (value.row && value.home != Home::kState) {
        if (value.home != Home::kOutput) place_[v] = add(shared, block_);
        if (value.in_elements && !program_.alone()) spread_[v] = add(shared, block_ * spread_length());
      } else if (value.home == Home::kInput) {
        access_[v] = access_of(value.index);
        if (access_[v] == Access::kSame || (access_[v] == Access::kMoved && !is_long_)) place_[v] = add(shared, whole);
        if (access_[v] == Access::kMoved && is_long_) place_[v] = add(local, run);
      } else if (value.home == Home::kKept) {
        if (value.lender < 0) place_[v] = add(shared, whole);
      } else if (value.home == Home::kRun) {
        place_[v] = add(local, run);
      }
    }
    for (size_t v = 0; v < values.size(); ++v) {
      if (values[v].home == Home::kOutput) outputs_.push_back(v);
      if (values[v].home == Home::kInput && !is_same(values[v].index)) moving_.push_back(v);
      if (values[v].lender >= 0) borrowers_.push_back(v);
      const bool same = values[v].home == Home::kInput && is_same(values[v].index) && access_[v] == Access::kDirect;
      row_step_.push_back(values[v].row ? values[v].size() : same ? 0 : length_ * values[v].size());
    }
    size_t most = 0;
    std::vector<bool> is_spread(values.size(), false);
    for (const RowProgram::Phase& phase : program_.phases()) {
      most = std::max(most, phase.reductions.size());
      fresh_.emplace_back();
      for (const int v : phase.elements ? phase.elements->in : std::vector<int>()) {
        const RowProgram::Value& value = values[static_cast<size_t>(v)];
        const bool once = value.home == Home::kInput && is_same(value.index);
        if (spread_[static_cast<size_t>(v)] < 0 || once || is_spread[static_cast<size_t>(v)]) continue;
        is_spread[static_cast<size_t>(v)] = true;
        fresh_.back().push_back(v);
      }
    }
    if (is_long_)
      entries_ =
          static_cast<int64_t>(shared.add(most * static_cast<uint64_t>(row_.parts * RowFold::entry_bytes(row_))));
    scratch_ = static_cast<int64_t>(
        local.add(static_cast<uint64_t>(program_.scratch_per_element() * std::max(tile_, block_))));
    shared_bytes_ = static_cast<int64_t>(shared.bytes());
    local_bytes_ = static_cast<int64_t>(local.bytes());
    workspace_bytes_ = static_cast<uint64_t>((by_pieces_ ? 1 : workers_) * shared_bytes_ + workers_ * local_bytes_);
  }

  // Values that each run has for itself: their places are of a run's first element.
  bool is_local(size_t v) const {
    const RowProgram::Value& value = program_.values()[v];
    return value.home == Home::kRun || (is_long_ && value.home == Home::kInput && access_[v] == Access::kMoved);
  }

  Frame frame_of(const KernelArgs& args, int64_t shared, int64_t local) const {
    char* const base = static_cast<char*>(args.workspace);
    return {{},
            base + shared * shared_bytes_,
            base + (by_pieces_ ? 1 : workers_) * shared_bytes_ + local * local_bytes_,
            &args,
            0,
            0,
            INT64_MAX};
  }

  // Places of values, and what all blocks read alike.
  void begin(Frame& frame) const {
    const auto& values = program_.values();
    for (size_t v = 0; v < values.size(); ++v) {
      const RowProgram::Value& value = values[v];
      frame.at[v] = place_[v] < 0 ? nullptr : (is_local(v) ? frame.local : frame.shared) + place_[v];
      if (value.home != Home::kInput && value.home != Home::kState) continue;
      char* const from = static_cast<char*>(const_cast<void*>(frame.args->inputs[value.index]));
      if (value.home == Home::kState) {
        frame.at[v] = from;
      } else if (is_same(value.index)) {
        for (int64_t r = 0; r < (is_in_place(v) ? 0 : block_); ++r) bring(v, from, r, frame);
        if (is_in_place(v)) frame.at[v] = from;
        if (spread_[v] >= 0) spread(value.size(), from, 1, block_ * spread_length(), frame.shared + spread_[v]);
      }
    }
  }

  // Is an input read where it is, at least until a run of a long row is brought together?
  bool is_in_place(size_t v) const {
    if (program_.values()[v].row) return block_ == 1;
    return access_[v] == Access::kDirect || (is_long_ && access_[v] == Access::kMoved);
  }
  void load(size_t v, const char* from, int64_t n, char* to) const {
    const RowProgram::Value& value = program_.values()[v];
    raw_load(static_cast<size_t>(value.size()))(from, lines_[static_cast<size_t>(value.index)].step, to, n);
  }
  // A row of an input, to where the block's row number r is.
  void bring(size_t v, const char* from, int64_t r, const Frame& frame) const {
    const RowProgram::Value& value = program_.values()[v];
    const int64_t n = value.row ? 1 : length_;
    load(v, from, n, frame.at[v] + r * n * value.size());
  }

  // The block's rows: where their values are, or, of inputs that lie apart, brought there.
  void enter(Frame& frame, int64_t first_row, int64_t rows) const {
    frame.first_row = first_row;
    frame.rows = rows;
    const auto& values = program_.values();
    for (const size_t v : outputs_)
      frame.at[v] = static_cast<char*>(frame.args->outputs[values[v].index]) +
                    first_row * (values[v].row ? 1 : length_) * values[v].size();
    for (const size_t v : borrowers_) frame.at[v] = frame.at[static_cast<size_t>(values[v].lender)];
    if (moving_.empty()) return;
    int64_t done = 0;
    nest_.for_segments(first_row, first_row + rows, [&](const auto& offsets, int64_t n) {
      for (const size_t v : moving_) {
        const RowProgram::Value& value = values[v];
        const int64_t size = value.size(), step = nest_.inner_stride(value.index) * size;
        char* const from =
            static_cast<char*>(const_cast<void*>(frame.args->inputs[value.index])) + offsets[value.index] * size;
        for (int64_t r = 0; r < n && !is_in_place(v); ++r) bring(v, from + r * step, done + r, frame);
        if (done == 0 && is_in_place(v)) frame.at[v] = from;
      }
      done += n;
    });
  }

  void run_blocks(const KernelArgs& args, int64_t worker, int64_t begin_block, int64_t end_block,
                  std::atomic<int>& error) const {
    Frame frame = frame_of(args, worker, worker);
    begin(frame);
    for (int64_t block = begin_block; block < end_block; ++block) {
      const int64_t first = block * block_;
      enter(frame, first, std::min(block_, rows_ - first));
      frame.shares = ahead_ && block + 1 < end_block ? 0 : INT64_MAX;
      for (size_t p = 0; p < program_.phases().size(); ++p) {
        start_phase(p, frame, error);
        if (is_long_) {
          for_runs([&](int64_t, int64_t part, int64_t at, int64_t n) { run_piece(p, frame, part, at, n, error); });
          finish_phase(p, frame);
        } else {
          if (program_.alone())
            for (int64_t row = 0; row < frame.rows; ++row) run_elements(p, frame, row, 0, length_, error);
          else
            run_elements(p, frame, 0, 0, frame.rows * length_, error);
          for (const RowProgram::Reduction& r : program_.phases()[p].reductions)
            r.fold->rows(frame.at[static_cast<size_t>(r.from)], length_, frame.rows,
                         frame.at[static_cast<size_t>(r.to)]);
        }
      }
    }
  }

  // A share of what the next block reads and writes, so that it is near by then: light steps do not hide that they
  // wait.
  void fetch_ahead(const Frame& frame) const {
    const auto fetch = [&](size_t v) {
      const int64_t bytes = program_.values()[v].row ? 0 : block_ * row_step_[v];
      const int64_t from = bytes * frame.shares / shares_, to = bytes * (frame.shares + 1) / shares_;
      fetch_lines(frame.at[v] + bytes + from, to - from);
    };
    for (const size_t v : moving_) fetch(v);
    for (const size_t v : outputs_) fetch(v);
    ++frame.shares;
  }

  // One row after the other, of which threads take runs.
  void run_pieces(const KernelArgs& args, std::atomic<int>& error) const {
    int64_t runs = 0;
    for_runs([&](int64_t, int64_t, int64_t, int64_t) { ++runs; });
    Frame frame = frame_of(args, 0, 0);
    begin(frame);
    for (int64_t row = 0; row < rows_; ++row) {
      enter(frame, row, 1);
      for (size_t p = 0; p < program_.phases().size(); ++p) {
        start_phase(p, frame, error);
        parallel_ranges(threads_of(), workers_, 1, [&](int64_t begin_worker, int64_t end_worker) {
          for (int64_t worker = begin_worker; worker < end_worker; ++worker) {
            Frame mine = frame;
            const char* const before = mine.local;
            mine.local = frame_of(args, 0, worker).local;
            for (size_t v = 0; v < program_.values().size(); ++v)
              if (program_.values()[v].home == Home::kRun) mine.at[v] += mine.local - before;
            for_runs([&](int64_t number, int64_t part, int64_t at, int64_t n) {
              // Each worker has a fixed share of the runs, so results do not depend on the number of threads.
              if (number >= runs * worker / workers_ && number < runs * (worker + 1) / workers_)
                run_piece(p, mine, part, at, n, error);
            });
          }
        });
        finish_phase(p, frame);
      }
    }
  }

  int threads_of() const { return workers_ > 1 ? threads_ : 1; }

  // f(number, part of the row, first element, how many)
  template <class F>
  void for_runs(F f) const {
    int64_t number = 0;
    for (int64_t part = 0; part < row_.parts; ++part)
      for (int64_t at = row_.first(part); at < row_.first(part + 1); at += kRun)
        f(number++, part, at, std::min(kRun, row_.first(part + 1) - at));
  }

  // Steps of rows, and their results spread over what elements are computed with.
  void start_phase(size_t p, Frame& frame, std::atomic<int>& error) const {
    const RowProgram::Phase& phase = program_.phases()[p];
    if (phase.rows) {
      std::array<const void*, RowProgram::kMostValues> in;
      std::array<void*, RowProgram::kMostValues> out;
      const auto& [program, inputs, outputs] = *phase.rows;
      for (size_t k = 0; k < inputs.size(); ++k) in[k] = frame.at[static_cast<size_t>(inputs[k])];
      for (size_t k = 0; k < outputs.size(); ++k) out[k] = frame.at[static_cast<size_t>(outputs[k])];
      call(p, true, program, {in.data(), out.data(), nullptr, 0, frame.rows, frame.local + scratch_, block_}, error);
      for (size_t k = 0; k < outputs.size(); ++k) {
        const auto v = static_cast<size_t>(outputs[k]);
        if (out[k] != frame.at[v])
          std::memcpy(frame.at[v], out[k], static_cast<size_t>(frame.rows * program_.values()[v].size()));
      }
    }
    for (const int fresh : fresh_[p]) {
      const auto v = static_cast<size_t>(fresh);
      spread(program_.values()[v].size(), frame.at[v], frame.rows, spread_length(), frame.shared + spread_[v]);
    }
  }

  void finish_phase(size_t p, Frame& frame) const {
    const auto& reductions = program_.phases()[p].reductions;
    for (size_t k = 0; k < reductions.size(); ++k)
      reductions[k].fold->finish(row_, entries_of(frame, k, 0), frame.at[static_cast<size_t>(reductions[k].to)]);
  }
  char* entries_of(const Frame& frame, size_t reduction, int64_t part) const {
    return frame.shared + entries_ + (static_cast<int64_t>(reduction) * row_.parts + part) * RowFold::entry_bytes(row_);
  }

  // Elements [at, at + n) of a long row.
  void run_piece(size_t p, const Frame& frame, int64_t part, int64_t at, int64_t n, std::atomic<int>& error) const {
    run_elements(p, frame, 0, at, n, error);
    const auto& reductions = program_.phases()[p].reductions;
    for (size_t k = 0; k < reductions.size(); ++k)
      reductions[k].fold->run(address(frame, static_cast<size_t>(reductions[k].from), 0, at, at), n,
                              at - row_.first(part), entries_of(frame, k, part));
  }

  // The address of element `element` of the block's row number `row`, where the run begins with element `run`.
  char* address(const Frame& frame, size_t v, int64_t row, int64_t element, int64_t run) const {
    const RowProgram::Value& value = program_.values()[v];
    if (value.home == Home::kInput && access_[v] == Access::kMoved && is_long_)
      return frame.local + place_[v] + (element - run) * value.size();
    return frame.at[v] + row * row_step_[v] + (element - (value.home == Home::kRun ? run : 0)) * value.size();
  }

  // Elements [first, first + n) of a row; or, where steps take several rows at once, those of a block.
  void run_elements(size_t p, const Frame& frame, int64_t row, int64_t first, int64_t n,
                    std::atomic<int>& error) const {
    const RowProgram::Phase& phase = program_.phases()[p];
    if (is_long_) move_run(phase, frame, first, n);
    if (!phase.elements) return;
    const auto& [program, inputs, outputs] = *phase.elements;
    const auto& values = program_.values();
    std::array<const void*, RowProgram::kMostValues> in;
    std::array<void*, RowProgram::kMostValues> out, to;
    std::array<const void*, RowProgram::kMostValues> states;
    for (int64_t at = first; at < first + n; at += tile_) {
      const int64_t m = std::min(tile_, first + n - at);
      if (frame.shares < shares_) fetch_ahead(frame);
      for (size_t k = 0; k < inputs.size(); ++k) {
        const auto v = static_cast<size_t>(inputs[k]);
        if (values[v].home == Home::kState)
          in[k] = states[k] = frame.at[v];
        else
          in[k] = values[v].row && spread_[v] >= 0 ? frame.shared + spread_[v]
                  : values[v].row                  ? frame.at[v] + row * row_step_[v]
                                                   : address(frame, v, row, at, first);
      }
      for (size_t k = 0; k < outputs.size(); ++k) {
        const auto v = static_cast<size_t>(outputs[k]);
        out[k] = to[k] = address(frame, v, row, at, first);
      }
      call(p, false, program,
           {in.data(), out.data(), states.data(), (frame.first_row + row) * length_ + at, m, frame.local + scratch_,
            tile_},
           error);
      for (size_t k = 0; k < outputs.size(); ++k) {
        const int64_t size = values[static_cast<size_t>(outputs[k])].size();
        if (out[k] != to[k]) std::memcpy(to[k], out[k], static_cast<size_t>(m * size));
      }
    }
  }

  // Brings the inputs of a phase together whose elements lie apart, for a run of a long row.
  void move_run(const RowProgram::Phase& phase, const Frame& frame, int64_t first, int64_t n) const {
    const auto move = [&](int input) {
      const auto v = static_cast<size_t>(input);
      const RowProgram::Value& value = program_.values()[v];
      if (value.row || value.home != Home::kInput || access_[v] != Access::kMoved) return;
      const int64_t step = lines_[static_cast<size_t>(value.index)].step;
      load(v, frame.at[v] + first * step * value.size(), n, frame.local + place_[v]);
    };
    if (phase.elements)
      for (const int input : phase.elements->in) move(input);
    for (const RowProgram::Reduction& r : phase.reductions) move(r.from);
  }

  void call(size_t p, bool rows, const FusedProgram& program, const FusedProgram::Piece& piece,
            std::atomic<int>& error) const {
    const int e = program.run(piece);
    if (e != 0) error.store(RowProgram::error_in(static_cast<int>(p), rows, e), std::memory_order_relaxed);
  }

  const RowProgram program_;
  const std::vector<Line> lines_;  // of inputs
  const RowNest nest_;
  const int threads_;
  const int64_t rows_, length_;
  const LongRow row_;
  const bool is_long_;
  std::vector<Access> access_;                        // of values that are inputs of elements
  std::vector<size_t> outputs_, moving_, borrowers_;  // values that are elsewhere for each block; moving_: inputs
  std::vector<int64_t> row_step_;                     // of values: bytes from a row to the block's next one
  std::vector<int64_t> place_;                        // of values: in the block's memory or a run's; -1: has none there
  std::vector<int64_t> spread_;          // of values of rows: where each stands for all elements of its row
  std::vector<std::vector<int>> fresh_;  // by phase: which values of rows it is the first to spread
  int64_t tile_ = 0, block_ = 1;         // elements that steps take at once; rows that go through all phases at once
  int64_t workers_ = 1, shares_ = 0;
  bool by_pieces_ = false, ahead_ = false;
  int64_t entries_ = 0, scratch_ = 0, shared_bytes_ = 0, local_bytes_ = 0;
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
  auto usual = std::make_unique<FusedRows>(q, std::move(rows), std::move(program), context.threads);
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
