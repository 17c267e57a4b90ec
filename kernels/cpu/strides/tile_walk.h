#pragma once
// Walks the operands of elementwise kernels together, in pieces of up to kTile elements: strided.h over tiles.h.
#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "kernels/cpu/strides/streamed_copy.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/kernel.h"

namespace sluice::cpu {

// Elements of a piece that is streamed: of small ones, the next loads are under way while one is written.
inline constexpr int64_t kStreamedTile = 128;
inline constexpr int64_t kLightGrain = 32768, kHeavyGrain = 4096;  // elements worth a thread

// How an operand comes into, or goes out of, the tiles that are computed on.
struct OperandPlan {
  LoadFn load = nullptr;    // inputs
  StoreFn store = nullptr;  // outputs
  int64_t size = 0;         // bytes of an element in memory
  int64_t tile_size = 0;    // and in a tile
  bool as_tile = false;     // memory of stride 1 is a tile already
};

// Elements as they are in memory.
inline OperandPlan raw_operand(int64_t size) {
  return {raw_load(static_cast<size_t>(size)), raw_store(static_cast<size_t>(size)), size, size, true};
}

struct WalkOptions {
  int64_t tile = kTile;        // elements of a piece
  int64_t direct = INT64_MAX;  // and of one for which no operand has to be moved
  int64_t short_row = 0;       // rows up to here are taken together; 0: up to a quarter of a piece
  bool in_order = false;       // pieces are runs of elements in row-major order
};

// For up to kMost operands. Thread safety: run() may be called from several threads at once.
template <int kMost>
class TileWalk {
 public:
  static constexpr int64_t kBytes = kMaxOperands * kTileBytes;  // of the tiles of all operands

  // `operands`: of the query's inputs, then of its outputs, which are all of one shape. REQUIRES: their tiles of
  // options.tile elements take no more than kBytes.
  TileWalk(const plan::KernelQuery& q, std::vector<OperandPlan> operands, const WalkOptions& options = {})
      : operands_(std::move(operands)),
        count_(static_cast<int>(operands_.size())),
        inputs_(static_cast<int>(q.inputs.size())),
        options_(options),
        nest_(make_nest(q, options.in_order)),
        rest_(nest_) {
    int64_t offset = 0;
    for (int k = 0; k < count_; ++k) {
      const bool dense = nest_.inner_stride(k) == 1 || nest_.inner() == 1;
      all_direct_ &= operands_[k].as_tile && dense;
      tile_at_[k] = offset;
      offset += operands_[k].tile_size * options.tile;
    }
    use_rows();
    streams_ = !by_rows_ && bytes_touched() > streaming_bytes();
    tile_ = streams_ ? std::min(kStreamedTile, options_.tile) : options_.tile;
  }

  // Whether input k repeats one element in each piece; from now on in[k] is that element then.
  bool give_one(int k) {
    return one_[k] = !by_rows_ && operands_[k].as_tile && nest_.inner_stride(k) == 0 && nest_.inner() > 1;
  }

  // In ranges that threads share, calls f(in, out, element, n), where f = make() is of one range: in[k] is the tile of
  // input k, out[k] where f writes output k, unless it sets it to another tile, of memory that lives as long as f.
  // `element`: the first one's number, where pieces are in order. f returns 0, or an error; one of the errors is
  // returned.
  template <class Make>
  int run(const KernelArgs& args, int threads, int64_t grain, const Make& make) const {
    if (nest_.size() == 0) return 0;
    std::atomic<int> error{0};
    const bool streams = streams_ && !in_place(args);
    const auto range = [&](int64_t begin, int64_t end) {
      auto f = make();
      const int e = by_rows_ ? run_rows(args, begin, end, f) : run_segments(args, begin, end, streams, f);
      if (e) error.store(e, std::memory_order_relaxed);
    };
    if (by_rows_)
      parallel_ranges(threads, nest_.size() / nest_.inner(), std::max<int64_t>(grain / nest_.inner(), 1), range);
    else
      parallel_ranges(threads, nest_.size(), grain, range);
    return error.load(std::memory_order_relaxed);
  }

 private:
  using Nest = LoopNestOf<kMost>;
  using Addresses = std::array<char*, kMost>;
  // The rows of an operand's elements: element (r, i) lies at r * row_step + i * step.
  struct Rows {
    int64_t row_step = 0, step = 0;
    bool one_line = false;  // rows follow each other: a block is one line of step `step`
  };

  static Nest make_nest(const plan::KernelQuery& q, bool in_order) {
    std::vector<Strides> strides;
    for (const TensorSpec& in : q.inputs) strides.push_back(broadcast_strides(in, q.outputs[0].shape));
    for (const TensorSpec& out : q.outputs) strides.push_back(out.strides);
    return in_order ? Nest::in_order(q.outputs[0].shape, strides) : Nest(q.outputs[0].shape, strides);
  }

  // A short innermost axis (a bias of 10, maps of 8 x 8) is taken together with the one around it.
  void use_rows() {
    const int last = nest_.outer_rank() - 1;
    by_rows_ = last >= 0 && nest_.inner() <= (options_.short_row > 0 ? options_.short_row : options_.tile / 4);
    if (!by_rows_) return;
    row_count_ = nest_.outer_dim(last);
    Shape shape;
    std::vector<Strides> strides(operands_.size());
    for (int axis = 0; axis < last; ++axis) shape.push_back(nest_.outer_dim(axis));
    for (int k = 0; k < count_; ++k) {
      for (int axis = 0; axis < last; ++axis) strides[k].push_back(nest_.outer_stride(k, axis));
      rows_[k] = {nest_.outer_stride(k, last), nest_.inner_stride(k), false};
      rows_[k].one_line = rows_[k].row_step == rows_[k].step * nest_.inner();
    }
    rest_ = Nest::in_order(shape, strides);
  }

  // The bytes of all operands, as often as they are read or written.
  int64_t bytes_touched() const {
    int64_t bytes = 0;
    for (int k = 0; k < count_; ++k) {
      int64_t elements = nest_.inner_stride(k) == 0 ? 1 : nest_.inner();
      for (int axis = 0; axis < nest_.outer_rank(); ++axis)
        if (nest_.outer_stride(k, axis) != 0) elements *= nest_.outer_dim(axis);
      bytes += elements * operands_[k].size;
    }
    return bytes;
  }

  // Whether an output lies where an input does, whose lines are in the cache when it is written.
  bool in_place(const KernelArgs& args) const {
    for (int k = inputs_; k < count_; ++k)
      for (int i = 0; i < inputs_; ++i)
        if (args.outputs[k - inputs_] == args.inputs[i]) return true;
    return false;
  }

  // streams: outputs of more bytes than the cache holds are computed in tiles there, and written past it.
  template <class F>
  int run_segments(const KernelArgs& args, int64_t begin, int64_t end, bool streams, F& f) const {
    const int64_t piece = all_direct_ && !streams && options_.direct > options_.tile ? options_.direct : tile_;
    int error = 0;
    int64_t element = begin;
    alignas(64) char tiles[kBytes];
    const void* in[kMost] = {};
    void* out[kMost] = {};
    nest_.for_segments(begin, end, [&](const auto& offsets, int64_t n) {
      const Addresses at = addresses(args, offsets);
      for (int64_t done = 0, m = 0; done < n; done += m) {
        m = std::min(piece, n - done);
        if (streams && done == 0) m = std::min(m, piece - past_line(at));
        for (int k = 0; k < count_; ++k) {
          const int64_t step = nest_.inner_stride(k);
          char* const from = at[k] + done * step * operands_[k].size;
          if (k < inputs_)
            in[k] = one_[k] ? from : fetch(operands_[k], from, step, tiles + tile_at_[k], m, step != 0 || done == 0);
          else
            out[k - inputs_] = !streams && is_direct(operands_[k], step, m) ? from : tiles + tile_at_[k];
        }
        if (const int e = f(in, out, element + done, m)) error = e;
        for (int k = inputs_; k < count_; ++k) {
          const int64_t step = nest_.inner_stride(k);
          char* const memory = at[k] + done * step * operands_[k].size;
          if (out[k - inputs_] == memory) continue;
          if (streams && is_direct(operands_[k], step, m))
            streamed_copy(out[k - inputs_], memory, m * operands_[k].size);
          else
            operands_[k].store(out[k - inputs_], memory, step, m);
        }
      }
      element += n;
    });
    if (streams) finish_streams();
    return error;
  }

  template <class F>
  int run_rows(const KernelArgs& args, int64_t begin, int64_t end, F& f) const {
    const int64_t inner = nest_.inner(), block = options_.tile / inner;
    int error = 0;
    alignas(64) char tiles[kBytes];
    const void* in[kMost] = {};
    void* out[kMost] = {};
    for (int64_t row = begin; row < end;) {
      const int64_t around = row / row_count_;
      const int64_t last = std::min(end, (around + 1) * row_count_);
      rest_.for_segments(around, around + 1, [&](const auto& offsets, int64_t) {
        const Addresses base = addresses(args, offsets);
        bool first = true;
        for (; row < last; row += block, first = false) {
          const int64_t r = row % row_count_, m = std::min(block, last - row);
          const auto memory = [&](int k) { return base[k] + r * rows_[k].row_step * operands_[k].size; };
          for (int k = 0; k < inputs_; ++k) in[k] = fetch_rows(k, memory(k), tiles + tile_at_[k], m, first);
          for (int k = inputs_; k < count_; ++k) {
            const bool direct = rows_[k].one_line && is_direct(operands_[k], rows_[k].step, m * inner);
            out[k - inputs_] = direct ? memory(k) : tiles + tile_at_[k];
          }
          if (const int e = f(in, out, row * inner, m * inner)) error = e;
          for (int k = inputs_; k < count_; ++k)
            if (out[k - inputs_] != memory(k)) put_rows(k, static_cast<const char*>(out[k - inputs_]), memory(k), m);
        }
        row = last;
      });
    }
    return error;
  }

  // How many elements the first output begins behind a line: the pieces behind the first one are whole lines.
  int64_t past_line(const Addresses& at) const {
    const auto address = reinterpret_cast<uintptr_t>(at[inputs_]);
    return static_cast<int64_t>(address % kStreamedLine) / operands_[inputs_].size;
  }

  template <class Offsets>
  Addresses addresses(const KernelArgs& args, const Offsets& offsets) const {
    Addresses at{};
    for (int k = 0; k < inputs_; ++k)
      at[k] = const_cast<char*>(static_cast<const char*>(args.inputs[k])) + offsets[k] * operands_[k].size;
    for (int k = inputs_; k < count_; ++k)
      at[k] = static_cast<char*>(args.outputs[k - inputs_]) + offsets[k] * operands_[k].size;
    return at;
  }

  static bool is_direct(const OperandPlan& o, int64_t step, int64_t n) { return o.as_tile && (step == 1 || n == 1); }

  // n elements as a tile: where they lie, or loaded. A repeated element fills its tile once.
  static const void* fetch(const OperandPlan& o, const char* from, int64_t step, char* tile, int64_t n, bool fresh) {
    if (is_direct(o, step, n)) return from;
    if (fresh) o.load(from, step, tile, n);
    return tile;
  }

  const void* fetch_rows(int k, const char* from, char* tile, int64_t rows, bool first) const {
    const OperandPlan& o = operands_[k];
    const int64_t inner = nest_.inner();
    if (rows_[k].one_line) return fetch(o, from, rows_[k].step, tile, rows * inner, rows_[k].step != 0 || first);
    if (rows_[k].row_step != 0 || first)
      for (int64_t r = 0; r < rows; ++r)
        o.load(from + r * rows_[k].row_step * o.size, rows_[k].step, tile + r * inner * o.tile_size, inner);
    return tile;
  }

  void put_rows(int k, const char* tile, char* to, int64_t rows) const {
    const OperandPlan& o = operands_[k];
    const int64_t inner = nest_.inner();
    if (rows_[k].one_line) return o.store(tile, to, rows_[k].step, rows * inner);
    for (int64_t r = 0; r < rows; ++r)
      o.store(tile + r * inner * o.tile_size, to + r * rows_[k].row_step * o.size, rows_[k].step, inner);
  }

  const std::vector<OperandPlan> operands_;
  const int count_, inputs_;
  const WalkOptions options_;
  const Nest nest_;
  Nest rest_;  // the axes around rows
  std::array<int64_t, kMost> tile_at_{};
  std::array<Rows, kMost> rows_{};
  std::array<bool, kMost> one_{};
  int64_t row_count_ = 0, tile_ = 0;
  bool all_direct_ = true, by_rows_ = false, streams_ = false;
};

}  // namespace sluice::cpu
