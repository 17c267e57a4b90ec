#include "kernels/cpu/fused/row_places.h"

#include "kernels/cpu/strides/spread.h"
#include "kernels/cpu/strides/streamed_copy.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {

using Home = RowProgram::Home;

RowPlaces::RowPlaces(const RowProgram& program, const RowInputs& inputs, const RowBlocks& blocks)
    : program_(program), inputs_(inputs), blocks_(blocks) {
  place_values();
  list_values();
  list_fresh();
}

RowPlaces::Access RowPlaces::access_of(int input) const {
  const int64_t step = inputs_.step(input);
  if (blocks_.block() == 1) return step == 1 || blocks_.length() == 0 ? Access::kDirect : Access::kMoved;
  if (inputs_.same(input)) return program_.alone() && step == 1 ? Access::kDirect : Access::kSame;
  return inputs_.follow(input) ? Access::kDirect : Access::kMoved;
}

// Gives each value that needs one its place in a block's memory, or in that of a run.
void RowPlaces::place_values() {
  const auto& values = program_.values();
  const bool is_long = blocks_.is_long();
  const int64_t block = blocks_.block(), length = blocks_.length();
  const int64_t whole = is_long ? length : block * length, run = is_long ? kRun : whole;
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
      if (value.home != Home::kOutput) place_[v] = add(shared, block);
      if (value.in_elements && !program_.alone()) spread_[v] = add(shared, block * blocks_.spread_length());
    } else if (value.home == Home::kInput) {
      access_[v] = access_of(value.index);
      if (access_[v] == Access::kSame || (access_[v] == Access::kMoved && !is_long)) place_[v] = add(shared, whole);
      if (access_[v] == Access::kMoved && is_long) place_[v] = add(local, run);
    } else if (value.home == Home::kKept) {
      if (value.lender < 0) place_[v] = add(shared, whole);
    } else if (value.home == Home::kRun) {
      place_[v] = add(local, run);
    }
  }
  if (is_long) {
    size_t most = 0;
    for (const RowProgram::Phase& phase : program_.phases()) most = std::max(most, phase.reductions.size());
    const LongRow& row = blocks_.long_row();
    entries_ = static_cast<int64_t>(shared.add(most * static_cast<uint64_t>(row.parts * RowFold::entry_bytes(row))));
  }
  scratch_ = static_cast<int64_t>(
      local.add(static_cast<uint64_t>(program_.scratch_per_element() * std::max(blocks_.tile(), block))));
  shared_bytes_ = static_cast<int64_t>(shared.bytes());
  local_bytes_ = static_cast<int64_t>(local.bytes());
  workspace_bytes_ = static_cast<uint64_t>((blocks_.by_pieces() ? 1 : blocks_.workers()) * shared_bytes_ +
                                           blocks_.workers() * local_bytes_);
}

void RowPlaces::list_values() {
  const auto& values = program_.values();
  for (size_t v = 0; v < values.size(); ++v) {
    if (values[v].home == Home::kOutput) outputs_.push_back(v);
    if (values[v].home == Home::kInput && !inputs_.same(values[v].index)) moving_.push_back(v);
    if (values[v].lender >= 0) borrowers_.push_back(v);
    const bool same = values[v].home == Home::kInput && inputs_.same(values[v].index) && access_[v] == Access::kDirect;
    row_step_.push_back(values[v].row ? values[v].size() : same ? 0 : blocks_.length() * values[v].size());
  }
}

void RowPlaces::list_fresh() {
  const auto& values = program_.values();
  std::vector<bool> is_spread(values.size(), false);
  for (const RowProgram::Phase& phase : program_.phases()) {
    fresh_.emplace_back();
    for (const int v : phase.elements ? phase.elements->in : std::vector<int>()) {
      const RowProgram::Value& value = values[static_cast<size_t>(v)];
      const bool once = value.home == Home::kInput && inputs_.same(value.index);
      if (spread_[static_cast<size_t>(v)] < 0 || once || is_spread[static_cast<size_t>(v)]) continue;
      is_spread[static_cast<size_t>(v)] = true;
      fresh_.back().push_back(v);
    }
  }
}

// Values that each run has for itself: their places are of a run's first element.
bool RowPlaces::is_local(size_t v) const { return program_.values()[v].home == Home::kRun || moves_by_runs(v); }

// Is an input read where it is, at least until a run of a long row is brought together?
bool RowPlaces::is_in_place(size_t v) const {
  if (program_.values()[v].row) return blocks_.block() == 1;
  return access_[v] == Access::kDirect || moves_by_runs(v);
}

RowFrame RowPlaces::begin(const KernelArgs& args, int64_t worker) const {
  char* const base = static_cast<char*>(args.workspace);
  const int64_t blocks = blocks_.by_pieces() ? 1 : blocks_.workers();
  RowFrame frame{{},
                 base + (blocks_.by_pieces() ? 0 : worker) * shared_bytes_,
                 base + blocks * shared_bytes_ + worker * local_bytes_,
                 &args,
                 0,
                 0};
  const auto& values = program_.values();
  for (size_t v = 0; v < values.size(); ++v) {
    const RowProgram::Value& value = values[v];
    frame.at[v] = place_[v] < 0 ? nullptr : (is_local(v) ? frame.local : frame.shared) + place_[v];
    if (value.home != Home::kInput && value.home != Home::kState) continue;
    char* const from = static_cast<char*>(const_cast<void*>(args.inputs[value.index]));
    if (value.home == Home::kState) {
      frame.at[v] = from;
    } else if (inputs_.same(value.index)) {
      for (int64_t r = 0; r < (is_in_place(v) ? 0 : blocks_.block()); ++r) bring(v, from, r, frame);
      if (is_in_place(v)) frame.at[v] = from;
      if (spread_[v] >= 0)
        spread(value.size(), from, 1, blocks_.block() * blocks_.spread_length(), frame.shared + spread_[v]);
    }
  }
  return frame;
}

RowFrame RowPlaces::for_worker(const RowFrame& frame, int64_t worker) const {
  RowFrame mine = frame;
  mine.local = static_cast<char*>(frame.args->workspace) + shared_bytes_ + worker * local_bytes_;
  for (size_t v = 0; v < program_.values().size(); ++v)
    if (program_.values()[v].home == Home::kRun) mine.at[v] += mine.local - frame.local;
  return mine;
}

void RowPlaces::load(size_t v, const char* from, int64_t n, char* to) const {
  const RowProgram::Value& value = program_.values()[v];
  raw_load(static_cast<size_t>(value.size()))(from, inputs_.step(value.index), to, n);
}

// A row of an input, to where the block's row number r is.
void RowPlaces::bring(size_t v, const char* from, int64_t r, const RowFrame& frame) const {
  const RowProgram::Value& value = program_.values()[v];
  const int64_t n = value.row ? 1 : blocks_.length();
  load(v, from, n, frame.at[v] + r * n * value.size());
}

void RowPlaces::enter(RowFrame& frame, int64_t first_row, int64_t rows) const {
  frame.first_row = first_row;
  frame.rows = rows;
  const auto& values = program_.values();
  for (const size_t v : outputs_)
    frame.at[v] = static_cast<char*>(frame.args->outputs[values[v].index]) +
                  first_row * (values[v].row ? 1 : blocks_.length()) * values[v].size();
  for (const size_t v : borrowers_) frame.at[v] = frame.at[static_cast<size_t>(values[v].lender)];
  if (moving_.empty()) return;
  int64_t done = 0;
  inputs_.nest().for_segments(first_row, first_row + rows, [&](const auto& offsets, int64_t n) {
    for (const size_t v : moving_) {
      const RowProgram::Value& value = values[v];
      const int64_t size = value.size(), step = inputs_.nest().inner_stride(value.index) * size;
      char* const from =
          static_cast<char*>(const_cast<void*>(frame.args->inputs[value.index])) + offsets[value.index] * size;
      for (int64_t r = 0; r < n && !is_in_place(v); ++r) bring(v, from + r * step, done + r, frame);
      if (done == 0 && is_in_place(v)) frame.at[v] = from;
    }
    done += n;
  });
}

void RowPlaces::spread_fresh(size_t p, const RowFrame& frame) const {
  for (const int fresh : fresh_[p]) {
    const auto v = static_cast<size_t>(fresh);
    spread(program_.values()[v].size(), frame.at[v], frame.rows, blocks_.spread_length(), frame.shared + spread_[v]);
  }
}

void RowPlaces::move_run(const RowProgram::Phase& phase, const RowFrame& frame, int64_t first, int64_t n) const {
  const auto move = [&](int input) {
    const auto v = static_cast<size_t>(input);
    const RowProgram::Value& value = program_.values()[v];
    if (value.row || value.home != Home::kInput || access_[v] != Access::kMoved) return;
    load(v, frame.at[v] + first * inputs_.step(value.index) * value.size(), n, frame.local + place_[v]);
  };
  if (phase.elements)
    for (const int input : phase.elements->in) move(input);
  for (const RowProgram::Reduction& r : phase.reductions) move(r.from);
}

void RowPlaces::fetch_next(const RowFrame& frame, int64_t share, int64_t shares) const {
  const auto fetch = [&](size_t v) {
    const int64_t bytes = program_.values()[v].row ? 0 : blocks_.block() * row_step_[v];
    const int64_t from = bytes * share / shares, to = bytes * (share + 1) / shares;
    fetch_lines(frame.at[v] + bytes + from, to - from);
  };
  for (const size_t v : moving_) fetch(v);
  for (const size_t v : outputs_) fetch(v);
}

}  // namespace sluice::cpu
