// Rows through elementwise steps and reductions as one kernel. A block of short rows, or a piece of a long one, is in
// the cache from the first phase to the last; of rows longer than that, what a later phase reads is kept in the
// workspace.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/row_lines.h"
#include "kernels/cpu/row_program.h"
#include "kernels/cpu/spread.h"
#include "kernels/cpu/support.h"
#include "kernels/cpu/tile_walk.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRowTile = 1024;  // elements of short rows that steps take at a time; of longer ones it is a tile
constexpr int64_t kTileScratch = 32768;  // bytes of what passes between them, which stay in the first-level cache
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
    streams_ = static_cast<int64_t>(bytes) > streaming_bytes();
    lay_out();
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
  // Where the values of a block are: a row's elements begin there, or, of what is in pieces, those of a run.
  struct Frame {
    std::array<char*, RowProgram::kMostValues> at;
    char* shared;  // of the block
    char* local;   // of who works on a run of it
    const KernelArgs* args;
    int64_t first_row, rows;
  };
  // What is to be done with an input of elements.
  enum class Access : uint8_t {
    kDirect,  // rows follow each other, or there is one of them
    kSame,    // every row reads the same: repeated once
    kMoved    // brought together
  };

  void choose_blocks() {
    const int64_t fits = kTileScratch / std::max<int64_t>(program_.scratch_per_element(), 1);
    tile_ = std::clamp<int64_t>(fits / kFoldLanes * kFoldLanes, kFoldLanes,
                                program_.random() ? kTile : kRowTile);  // random steps take no more than a tile
    block_ = std::clamp<int64_t>(tile_ / std::max<int64_t>(length_, 1), 1, std::max<int64_t>(rows_, 1));
    tile_ = block_ > 1 ? block_ * length_ : std::min(tile_, kTile);
  }

  // Whether all rows read the same.
  bool is_same(int input) const {
    if (nest_.inner() > 1 && nest_.inner_stride(input) != 0) return false;
    for (int axis = 0; axis < nest_.outer_rank(); ++axis)
      if (nest_.outer_stride(input, axis) != 0) return false;
    return true;
  }
  Access access_of(int input) const {
    const int64_t step = lines_[static_cast<size_t>(input)].step;
    if (block_ == 1) return step == 1 || length_ == 0 ? Access::kDirect : Access::kMoved;
    if (is_same(input)) return Access::kSame;
    int64_t next = length_;  // where the next row begins, if rows follow each other
    bool follows = step == 1 && (nest_.inner() == 1 || nest_.inner_stride(input) == next);
    next *= nest_.inner();
    for (int axis = nest_.outer_rank() - 1; axis >= 0; next *= nest_.outer_dim(axis--))
      follows = follows && nest_.outer_stride(input, axis) == next;
    return follows ? Access::kDirect : Access::kMoved;
  }

  // A result whose memory a value may use until it is written, as the last of its phase; it is in the cache then. -1:
  // none.
  int lender_of(size_t v) const {
    const auto& values = program_.values();
    for (const RowProgram::Phase& phase : program_.phases()) {
      if (!phase.elements) continue;
      const int last = phase.elements->out[0];
      const RowProgram::Value& value = values[static_cast<size_t>(last)];
      if (value.home == Home::kOutput && !value.row && value.size() == values[v].size() &&
          values[v].made < value.made && values[v].read <= value.made &&
          std::find(lender_.begin(), lender_.end(), last) == lender_.end())
        return last;
    }
    return -1;
  }

  int64_t spread_length() const { return std::min(tile_, length_); }

  // Gives each value that needs one its place in a block's memory, or in that of a run.
  void lay_out() {
    const auto& values = program_.values();
    const int64_t whole = is_long_ ? length_ : block_ * length_, run = is_long_ ? kRun : whole;
    WorkspaceLayout shared, local;
    place_.assign(values.size(), -1);
    spread_.assign(values.size(), -1);
    access_.assign(values.size(), Access::kDirect);
    lender_.assign(values.size(), -1);
    for (size_t v = 0; v < values.size(); ++v) {
      const RowProgram::Value& value = values[v];
      const auto add = [&](WorkspaceLayout& to, int64_t n) {
        return static_cast<int64_t>(to.add(static_cast<uint64_t>(n * value.size())));
      };
      if (value.row && value.home != Home::kState) {
        if (value.home != Home::kOutput) place_[v] = add(shared, block_);
        if (value.in_elements) spread_[v] = add(shared, block_ * spread_length());
      } else if (value.home == Home::kInput) {
        access_[v] = access_of(value.index);
        if (access_[v] == Access::kSame || (access_[v] == Access::kMoved && !is_long_)) place_[v] = add(shared, whole);
        if (access_[v] == Access::kMoved && is_long_) place_[v] = add(local, run);
      } else if (value.home == Home::kKept) {
        lender_[v] = lender_of(v);
        if (lender_[v] < 0) place_[v] = add(shared, whole);
      } else if (value.home == Home::kRun) {
        place_[v] = add(local, run);
      } else if (value.home == Home::kOutput && streams(v)) {
        place_[v] = add(local, tile_);
      }
    }
    size_t most = 0;
    std::vector<bool> is_spread(values.size(), false);
    for (const RowProgram::Phase& phase : program_.phases()) {
      most = std::max(most, phase.reductions.size());
      fresh_.emplace_back();
      for (const int v : phase.elements ? phase.elements->in : std::vector<int>()) {
        const RowProgram::Value& value = values[static_cast<size_t>(v)];
        const bool once = value.home == Home::kInput && is_same(value.index);
        if (!value.row || value.home == Home::kState || once || is_spread[static_cast<size_t>(v)]) continue;
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

  // Is it a result that nobody reads here, nor lies in the cache already?
  bool streams(size_t v) const {
    const RowProgram::Value& value = program_.values()[v];
    return streams_ && value.home == Home::kOutput && !value.row && !value.read_again &&
           std::find(lender_.begin(), lender_.end(), static_cast<int>(v)) == lender_.end();
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
            0};
  }

  // What all blocks read alike.
  void begin(Frame& frame) const {
    const auto& values = program_.values();
    for (size_t v = 0; v < values.size(); ++v) {
      const RowProgram::Value& value = values[v];
      if (value.home != Home::kInput) continue;
      const char* const from = static_cast<const char*>(frame.args->inputs[value.index]);
      if (value.row && spread_[v] >= 0 && is_same(value.index)) {
        spread(value.size(), from, 1, block_ * spread_length(), frame.shared + spread_[v]);
      } else if (access_[v] == Access::kSame && !value.row) {
        char* const to = frame.shared + place_[v];
        for (int64_t r = 0; r < block_; ++r) load(v, from, length_, to + r * length_ * value.size());
      }
    }
  }

  void load(size_t v, const char* from, int64_t n, char* to) const {
    const RowProgram::Value& value = program_.values()[v];
    raw_load(static_cast<size_t>(value.size()))(from, lines_[static_cast<size_t>(value.index)].step, to, n);
  }

  // The block's rows: where their values are, or, of inputs that lie apart, brought there.
  void enter(Frame& frame, int64_t first_row, int64_t rows) const {
    frame.first_row = first_row;
    frame.rows = rows;
    const auto& values = program_.values();
    for (size_t v = 0; v < values.size(); ++v) {
      const RowProgram::Value& value = values[v];
      char* const place = (is_local(v) ? frame.local : frame.shared) + place_[v];
      if (value.home == Home::kOutput)
        frame.at[v] =
            static_cast<char*>(frame.args->outputs[value.index]) + first_row * (value.row ? 1 : length_) * value.size();
      else if (value.home == Home::kState)
        frame.at[v] = static_cast<char*>(const_cast<void*>(frame.args->inputs[value.index]));
      else
        frame.at[v] = place;
    }
    for (size_t v = 0; v < values.size(); ++v)
      if (lender_[v] >= 0) frame.at[v] = frame.at[static_cast<size_t>(lender_[v])];
    int64_t done = 0;
    nest_.for_segments(first_row, first_row + rows, [&](const auto& offsets, int64_t n) {
      for (size_t v = 0; v < values.size(); ++v) {
        const RowProgram::Value& value = values[v];
        if (value.home != Home::kInput) continue;
        const int64_t size = value.size(), step = nest_.inner_stride(value.index) * size;
        char* const from =
            static_cast<char*>(const_cast<void*>(frame.args->inputs[value.index])) + offsets[value.index] * size;
        if (value.row) {
          for (int64_t r = 0; r < n; ++r)
            std::memcpy(frame.at[v] + (done + r) * size, from + r * step, static_cast<size_t>(size));
        } else if (access_[v] == Access::kDirect || (is_long_ && access_[v] == Access::kMoved)) {
          if (done == 0) frame.at[v] = from;
        } else if (access_[v] == Access::kMoved) {
          for (int64_t r = 0; r < n; ++r) load(v, from + r * step, length_, frame.at[v] + (done + r) * length_ * size);
        }
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
      for (size_t p = 0; p < program_.phases().size(); ++p) {
        start_phase(p, frame, error);
        if (is_long_) {
          for_runs([&](int64_t, int64_t part, int64_t at, int64_t n) { run_piece(p, frame, part, at, n, error); });
          finish_phase(p, frame);
        } else {
          run_elements(p, frame, 0, frame.rows * length_, error);
          for (const RowProgram::Reduction& r : program_.phases()[p].reductions)
            r.fold->rows(frame.at[static_cast<size_t>(r.from)], length_, frame.rows,
                         frame.at[static_cast<size_t>(r.to)]);
        }
      }
    }
    if (streams_) finish_streams();
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
              if (number >= runs * worker / workers_ && number < runs * (worker + 1) / workers_)
                run_piece(p, mine, part, at, n, error);
            });
            if (streams_) finish_streams();
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
    run_elements(p, frame, at, n, error);
    const auto& reductions = program_.phases()[p].reductions;
    for (size_t k = 0; k < reductions.size(); ++k)
      reductions[k].fold->run(address(frame, static_cast<size_t>(reductions[k].from), at, at), n, at - row_.first(part),
                              entries_of(frame, k, part));
  }

  // Of element `element`, where the run begins with element `run`.
  char* address(const Frame& frame, size_t v, int64_t element, int64_t run) const {
    const RowProgram::Value& value = program_.values()[v];
    if (value.home == Home::kInput && access_[v] == Access::kMoved && is_long_)
      return frame.local + place_[v] + (element - run) * value.size();
    return frame.at[v] + (element - (value.home == Home::kRun ? run : 0)) * value.size();
  }

  void run_elements(size_t p, const Frame& frame, int64_t first, int64_t n, std::atomic<int>& error) const {
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
      for (size_t k = 0; k < inputs.size(); ++k) {
        const auto v = static_cast<size_t>(inputs[k]);
        if (values[v].home == Home::kState)
          in[k] = states[k] = frame.at[v];
        else
          in[k] = values[v].row ? frame.shared + spread_[v] : address(frame, v, at, first);
      }
      for (size_t k = 0; k < outputs.size(); ++k) {
        const auto v = static_cast<size_t>(outputs[k]);
        to[k] = address(frame, v, at, first);
        out[k] = streams(v) ? frame.local + place_[v] : to[k];
      }
      call(p, false, program,
           {in.data(), out.data(), states.data(), frame.first_row * length_ + at, m, frame.local + scratch_, tile_},
           error);
      for (size_t k = 0; k < outputs.size(); ++k) {
        if (out[k] == to[k]) continue;
        const auto v = static_cast<size_t>(outputs[k]);
        const int64_t bytes = m * values[v].size();
        streams(v) ? streamed_copy(out[k], to[k], bytes)
                   : static_cast<void>(std::memcpy(to[k], out[k], static_cast<size_t>(bytes)));
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
  std::vector<Access> access_;           // of values that are inputs of elements
  std::vector<int> lender_;              // of kept values: the result in whose memory it is; -1: it has its own
  std::vector<int64_t> place_;           // of values: in the block's memory or a run's; -1: has none there
  std::vector<int64_t> spread_;          // of values of rows: where each stands for all elements of its row
  std::vector<std::vector<int>> fresh_;  // by phase: which values of rows it is the first to spread
  int64_t tile_ = 0, block_ = 1;         // elements that steps take at once; rows that go through all phases at once
  int64_t workers_ = 1;
  bool by_pieces_ = false, streams_ = false;
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
  RowProgram program(body, dtypes, repeats);
  for (size_t k = 0; k < q.outputs.size(); ++k) {
    const RowProgram::Value& value = program.values()[static_cast<size_t>(body.outputs[k])];
    SLUICE_CHECK(value.dtype == q.outputs[k].dtype, "fused_rows: body gives {}; its output is of {}",
                 dtype_name(value.dtype), dtype_name(q.outputs[k].dtype));
  }
  return std::make_unique<FusedRows>(q, std::move(rows), std::move(program), context.threads);
}

// Rows are read where they are, if their elements follow each other.
plan::LayoutPreference fused_rows_layouts(const plan::KernelQuery& q) {
  plan::LayoutPreference p;
  const RowLines rows(q);
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    const Line& line = rows.lines[i];
    const bool lies = !rows.states[i] && line.is_line && (line.repeats || line.step == 1);
    p.inputs.push_back(lies ? plan::Layout::kAny : plan::Layout::kContiguous);
  }
  p.outputs.assign(q.outputs.size(), plan::Layout::kContiguous);
  return p;
}

}  // namespace

void add_fused_rows_kernel(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "fused_rows", .prepare = prepare_fused_rows, .layouts = fused_rows_layouts});
}

}  // namespace sluice::cpu
