#include "kernels/cpu/rows/fused_program.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "kernels/cpu/random/random_tiles.h"

namespace sluice::cpu {

// Places are numbered: inputs, outputs, then slots of the scratch. Slots are given out once all instructions are known.
class FusedProgram::Builder {
 public:
  Builder(FusedProgram& program, const AttrGraph& body, const std::vector<DType>& inputs, const std::vector<bool>& ones)
      : program_(program), body_(body) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      values_.push_back({inputs[i], !ones.empty() && ones[i], static_cast<int>(i)});
      sizes_.push_back(static_cast<int64_t>(dtype_size(inputs[i])));
    }
    sizes_.resize(inputs.size() + body.outputs.size(), 0);
    for (const AttrCall& step : body.calls) add(step);
    for (int output : body.outputs) {
      program.outputs_.push_back(values_.at(static_cast<size_t>(output)).dtype);
      program.results_.push_back(values_[static_cast<size_t>(output)].memory);
    }
    join_chains();
    give_out_slots();
  }

 private:
  using Kind = Instruction::Kind;

  int slot(int64_t size) {
    sizes_.push_back(size);
    return static_cast<int>(sizes_.size()) - 1;
  }

  // The place in which the next value is written. An output that may overwrite an input is written last of all.
  int place_of_next(DType dtype) {
    const int value = static_cast<int>(values_.size());
    const bool last = value == body_.inputs + static_cast<int>(body_.calls.size()) - 1;
    for (size_t k = 0; k < body_.outputs.size(); ++k)
      if (body_.outputs[k] == value && (last || k > 0)) return program_.num_inputs_ + static_cast<int>(k);
    return slot(static_cast<int64_t>(dtype_size(dtype)));
  }

  // The value in another place: an element for each, or, where it is one, that alone.
  int made_by(LoadFn load, int value, bool is_one, int64_t size) {
    Places& v = values_[static_cast<size_t>(value)];
    for (const Places::Made& made : v.made)
      if (made.load == load && made.is_one == is_one) return made.place;
    Instruction made{.kind = Kind::kLoad, .load = load, .out = slot(size)};
    if (v.is_one) made.stride = 0;
    if (is_one) made.most = 1;
    made.in[0] = v.memory;
    program_.instructions_.push_back(made);
    v.made.push_back({load, is_one, made.out});
    return made.out;
  }

  int as_tile(int value, TileType type, bool one_will_do = false) {
    const Places& v = values_[static_cast<size_t>(value)];
    const bool is_one = v.is_one && one_will_do;
    if (is_tile(v.dtype, type) && v.is_one == is_one) return v.memory;
    const LoadFn load = tile_load(v.dtype, type);
    SLUICE_CHECK_KIND(kUnsupported, load != nullptr, "fused: an operand of {}: has no tile of another type; cast it",
                      dtype_name(v.dtype));
    return made_by(load, value, is_one, tile_element_size(type));
  }

  // The value as memory has it.
  int as_elements(int value) {
    const Places& v = values_[static_cast<size_t>(value)];
    if (!v.is_one) return v.memory;
    const size_t size = dtype_size(v.dtype);
    return made_by(raw_load(size), value, false, static_cast<int64_t>(size));
  }

  // Makes a value of what `instruction` leaves in a tile.
  void define(Instruction instruction, TileType tile, DType dtype) {
    if (is_tile(dtype, tile)) {
      instruction.out = place_of_next(dtype);
      values_.push_back({dtype, false, instruction.out});
      program_.instructions_.push_back(instruction);
      return;
    }
    instruction.out = slot(tile_element_size(tile));
    program_.instructions_.push_back(instruction);
    store(instruction.out, tile, dtype);
  }

  void store(int from, TileType tile, DType dtype) {
    const int place = place_of_next(dtype);
    Instruction made{.kind = Kind::kStore, .store = tile_store(tile, dtype), .out = place};
    made.in[0] = from;
    program_.instructions_.push_back(made);
    values_.push_back({dtype, false, place});
  }

  const Places& operand(const AttrCall& step, size_t i) const { return values_[static_cast<size_t>(step.operands[i])]; }

  void add(const AttrCall& step) {
    Instruction made{.kind = Kind::kLoop, .step = static_cast<int>(program_.ops_.size())};
    program_.ops_.push_back(step.op);
    const size_t count = step.operands.size();
    const auto wants = [&](size_t wanted) {
      SLUICE_CHECK(count == wanted, "fused: step {} of {} operands; must have {}", step.op, count, wanted);
    };
    if (step.op == "cast") {
      wants(1);
      const DType from = operand(step, 0).dtype, to = get_attr<DType>(step.attrs, "dtype");
      if (from == to || is_tile(to, tile_of_cast(from, to))) {  // it is there already
        const int place =
            from == to ? as_elements(step.operands[0]) : as_tile(step.operands[0], tile_of_cast(from, to));
        values_.push_back({to, false, place});
        return;
      }
      const TileType tile = tile_of_cast(from, to);
      const int place = as_tile(step.operands[0], tile);
      return store(place, tile, to);
    }
    if (step.op == "where") {
      wants(3);
      for (size_t i = 0; i < 3; ++i) made.in[i] = as_elements(step.operands[i]);
      const DType dtype = operand(step, 1).dtype;
      SLUICE_CHECK(operand(step, 0).dtype == DType::kBool && operand(step, 2).dtype == dtype,
                   "fused: step where of {}, {} and {}; must be of bool, and two of one dtype",
                   dtype_name(operand(step, 0).dtype), dtype_name(dtype), dtype_name(operand(step, 2).dtype));
      made.loop = where_loop(static_cast<int64_t>(dtype_size(dtype)));
      made.out = place_of_next(dtype);
      values_.push_back({dtype, false, made.out});
      program_.instructions_.push_back(made);
      return;
    }
    if (step.op == "dropout") {
      wants(2);
      return add_dropout(step, made);
    }
    const DType dtype = operand(step, 0).dtype;
    const TileType tile = tile_type(dtype);
    const ScalarOp* op = find_scalar_op(step.op, step.attrs);
    const LoopSet* loops = op == nullptr || is_complex(dtype) ? nullptr : find_loops(*op);
    if (dtype == DType::kBool && loops != nullptr && loops->b8 != nullptr) {
      wants(static_cast<size_t>(op->inputs));
      for (size_t i = 0; i < count; ++i) made.in[i] = as_elements(step.operands[i]);
      made.loop = loops->b8;
      return define(made, TileType::kBool, DType::kBool);
    }
    const Loop loop = loops == nullptr ? nullptr : loop_of(*loops, tile);
    SLUICE_CHECK_KIND(kUnsupported, loop != nullptr && static_cast<size_t>(op->inputs) == count,
                      "fused: step {} of {} operands of {}: has no cpu form; run the steps one by one", step.op, count,
                      dtype_name(dtype));
    program_.heavy_ |= op->heavy;
    made.loop = loop;
    const size_t one = one_of(step);
    if (const Loop with_one = loop_with_one(*loops, tile, one)) made.loop = with_one;
    for (size_t i = 0; i < count; ++i) made.in[i] = as_tile(step.operands[i], tile, i == one && made.loop != loop);
    if (tile == TileType::kFloat && !op->gives_bool && *op->mode == '\0' && count <= 2 && (one == count || one == 1))
      made.link = {op->name, count == 1     ? ChainLink::Other::kNone
                             : one == count ? ChainLink::Other::kEach
                                            : ChainLink::Other::kOne};
    define(made, op->gives_bool ? TileType::kBool : tile, op->gives_bool ? DType::kBool : dtype);
  }

  // Which operand is one element, where it is the only one; else their number.
  size_t one_of(const AttrCall& step) const {
    size_t one = step.operands.size(), ones = 0;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      if (!operand(step, i).is_one) continue;
      one = i;
      ++ones;
    }
    return ones == 1 ? one : step.operands.size();
  }

  void add_dropout(const AttrCall& step, Instruction made) {
    const int state = step.operands[0];
    SLUICE_CHECK(state < program_.num_inputs_ && operand(step, 0).dtype == DType::kInt64,
                 "fused: step dropout reads a state that is no input of int64; it must be one");
    program_.is_state_[static_cast<size_t>(state)] = true;
    program_.random_ = program_.heavy_ = true;
    const DType dtype = operand(step, 1).dtype;
    made.kind = Kind::kDropout;
    made.tile = tile_type(dtype);
    made.state = state;
    made.p = get_attr<double>(step.attrs, "p");
    made.salt = get_attr<int64_t>(step.attrs, "salt");
    made.in[0] = as_tile(step.operands[1], made.tile);
    define(made, made.tile, dtype);
  }

  // Makes one loop of steps that are a chain, the longest one first.
  void join_chains() {
    auto& instructions = program_.instructions_;
    for (size_t i = 0; i < instructions.size(); ++i)
      for (size_t count = std::min(kMostLinks, instructions.size() - i); count > 1; --count)
        if (join_chain(i, count)) break;
  }

  bool join_chain(size_t first, size_t count) {
    auto& instructions = program_.instructions_;
    std::array<ChainLink, kMostLinks> links;
    for (size_t k = 0; k < count; ++k) {
      const Instruction& at = instructions[first + k];
      if (at.link.op.empty() || (k > 0 && !reads_alone(first + k, instructions[first + k - 1].out))) return false;
      links[k] = at.link;
    }
    const Loop loop = chain_loop({links.data(), count});
    if (loop == nullptr) return false;
    Instruction chain = instructions[first + count - 1];
    chain.loop = loop;
    chain.link = {};
    size_t operands = 0;
    chain.in[operands++] = instructions[first].in[0];
    for (size_t k = 0; k < count; ++k)
      if (links[k].other != ChainLink::Other::kNone) chain.in[operands++] = instructions[first + k].in[1];
    std::fill(chain.in + operands, std::end(chain.in), -1);
    instructions[first] = chain;
    instructions.erase(instructions.begin() + static_cast<int64_t>(first) + 1,
                       instructions.begin() + static_cast<int64_t>(first + count));
    return true;
  }

  // Is a place a slot that this instruction reads as its first operand, and nobody else does?
  bool reads_alone(size_t instruction, int place) const {
    int reads = 0;
    for (const Instruction& at : program_.instructions_)
      reads += static_cast<int>(std::count(std::begin(at.in), std::end(at.in), place));
    const auto& results = program_.results_;
    return program_.instructions_[instruction].in[0] == place && reads == 1 &&
           place >= program_.num_inputs_ + program_.num_outputs_ &&
           std::find(results.begin(), results.end(), place) == results.end();
  }

  // A slot is free again behind the last instruction that reads it. A loop may write where it reads, so its operands'
  // slots of the same size are free for its result; nothing else may.
  void give_out_slots() {
    const int first = program_.num_inputs_ + program_.num_outputs_;
    std::vector<int> last(sizes_.size(), -1);
    const auto& instructions = program_.instructions_;
    for (size_t i = 0; i < instructions.size(); ++i)
      for (int in : instructions[i].in)
        if (in >= 0) last[static_cast<size_t>(in)] = static_cast<int>(i);
    for (int result : program_.results_) last[static_cast<size_t>(result)] = static_cast<int>(instructions.size());
    program_.offsets_.assign(sizes_.size() - static_cast<size_t>(first), 0);
    std::vector<int64_t> slots;                    // their sizes
    std::map<int64_t, std::vector<int64_t>> free;  // slots by size
    for (size_t i = 0; i < instructions.size(); ++i) {
      const Instruction& at = instructions[i];
      const auto release = [&] {
        std::vector<int> seen;
        for (int in : at.in) {
          if (in < first || last[static_cast<size_t>(in)] != static_cast<int>(i)) continue;
          if (std::find(seen.begin(), seen.end(), in) != seen.end()) continue;
          seen.push_back(in);
          free[sizes_[static_cast<size_t>(in)]].push_back(program_.offsets_[static_cast<size_t>(in - first)]);
        }
      };
      if (at.kind == Kind::kLoop) release();
      if (at.out >= first) {
        const int64_t size = sizes_[static_cast<size_t>(at.out)];
        std::vector<int64_t>& there = free[size];
        if (there.empty()) {
          there.push_back(static_cast<int64_t>(slots.size()));
          slots.push_back(size);
        }
        program_.offsets_[static_cast<size_t>(at.out - first)] = there.back();
        there.pop_back();
      }
      if (at.kind != Kind::kLoop) release();
    }
    lay_out(slots);
  }

  // The largest first, so that each is aligned, however many elements they have room for.
  void lay_out(const std::vector<int64_t>& slots) {
    std::vector<size_t> order(slots.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return slots[a] > slots[b]; });
    std::vector<int64_t> begins(slots.size());
    for (const size_t slot : order) {
      begins[slot] = program_.scratch_;
      program_.scratch_ += slots[slot];
    }
    if (slots.empty()) return;
    for (int64_t& offset : program_.offsets_) offset = begins[static_cast<size_t>(offset)];
  }

  FusedProgram& program_;
  const AttrGraph& body_;
  std::vector<Places> values_;
  std::vector<int64_t> sizes_;  // of places, in bytes per element; of slots alone
};

FusedProgram::FusedProgram(const AttrGraph& body, const std::vector<DType>& inputs, const std::vector<bool>& ones)
    : num_inputs_(static_cast<int>(inputs.size())),
      num_outputs_(static_cast<int>(body.outputs.size())),
      is_state_(inputs.size(), false) {
  check_attr_graph(body, inputs.size(), body.outputs.size());
  Builder(*this, body, inputs, ones);
}

int FusedProgram::run(const Piece& piece) const {
  const int first = num_inputs_ + num_outputs_;
  const auto place = [&](int i) -> void* {
    if (i < num_inputs_) return const_cast<void*>(piece.in[i]);
    if (i < first) return piece.out[i - num_inputs_];
    return piece.scratch + offsets_[static_cast<size_t>(i - first)] * piece.room;
  };
  int error = 0;
  for (const Instruction& at : instructions_) {
    switch (at.kind) {
      case Instruction::Kind::kLoop: {
        const void* in[kMostLinks + 1] = {};
        for (size_t k = 0; k <= kMostLinks && at.in[k] >= 0; ++k) in[k] = place(at.in[k]);
        if (const int e = at.loop(in, place(at.out), piece.n)) error = at.step * 256 + e;
        break;
      }
      case Instruction::Kind::kLoad:
        at.load(place(at.in[0]), at.stride, place(at.out), std::min(piece.n, at.most));
        break;
      case Instruction::Kind::kStore: at.store(place(at.in[0]), place(at.out), 1, piece.n); break;
      case Instruction::Kind::kDropout:
        drop_tile({at.tile, static_cast<const int64_t*>(piece.states[at.state]), at.salt, at.p}, place(at.in[0]),
                  place(at.out), piece.element, piece.n);
        break;
    }
  }
  for (int k = 0; k < num_outputs_; ++k) piece.out[k] = place(results_[static_cast<size_t>(k)]);
  return error;
}

std::string FusedProgram::error_text(int error) const {
  return scalar_error_text(ops_.at(static_cast<size_t>(error / 256)), static_cast<ScalarError>(error % 256));
}

}  // namespace sluice::cpu
