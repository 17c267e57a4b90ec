#include "kernels/cpu/control/loop_memory.h"

#include <algorithm>

#include "plan/loop_program.h"
#include "plan/pack/packing.h"

namespace sluice::cpu {
namespace {

using Base = LoopPlace::Base;
constexpr int64_t kBeforeCalls =
    -1;  // the time of copies before a turn; calls have their numbers, and what comes after

// Memory that values have one after another.
struct LoopBuffer {
  LoopPlace place;
  int state = -1;               // it is that of this state
  bool own = false;             // in the workspace
  int64_t begin = 0;            // time of the first write
  int64_t last = kBeforeCalls;  // of the last read
  uint64_t bytes = 0;
};

// The facts about a value: which one's memory it looks at, and how.
struct LoopValue {
  int root = 0;
  uint64_t offset = 0;
  TensorSpec spec;
};

uint64_t loop_bytes(const TensorSpec& spec) { return checked_bytes(spec.shape, dtype_size(spec.dtype)); }

class LoopLayouts {
 public:
  LoopLayouts(const plan::KernelQuery& query, const PrepareContext& context)
      : query_(query), context_(context), program_(get_attr<AttrGraph>(query.attrs, "program")) {
    out_.states = static_cast<int>(get_attr<int64_t>(query.attrs, "states"));
    out_.rows = static_cast<int>(get_attr<int64_t>(query.attrs, "rows"));
    out_.length = get_attr<int64_t>(query.attrs, "length");
    out_.reverse = get_attr<bool>(query.attrs, "reverse");
    end_ = static_cast<int64_t>(program_.calls.size());
    check_attr_graph(program_, query.inputs.size(), query.outputs.size(), true);
    const auto inputs = static_cast<int64_t>(query.inputs.size()), outputs = static_cast<int64_t>(query.outputs.size());
    SLUICE_CHECK(out_.states >= 0 && out_.rows >= 0 && int64_t{out_.states} + out_.rows <= inputs &&
                     out_.states <= outputs && (out_.length >= 0 || out_.states > 0),
                 "loop: {} states and {} rows of {} inputs and {} outputs; must be no more than these", out_.states,
                 out_.rows, inputs, outputs);
  }

  LoopLayout run() {
    add_inputs();
    add_results();
    note_reads();
    int first = program_.inputs;
    for (int64_t i = 0; i < end_; ++i) {
      const AttrCall& call = program_.calls[static_cast<size_t>(i)];
      if (call.op != plan::kWindow) add_call(call, i, first);
      first += call.num_results();
    }
    add_copies();
    pack();
    out_.values = values_.size();
    for (const int output : program_.outputs) out_.given.push_back(root(output));
    return std::move(out_);
  }

 private:
  bool is_state(int root) const { return root < out_.states; }
  bool is_input(int root) const { return root < program_.inputs; }

  // States lie in the loop's outputs, where the last turn leaves them. Rows are read where they lie in the whole
  // tensor, one row further each turn.
  void add_inputs() {
    for (int i = 0; i < program_.inputs; ++i) {
      TensorSpec spec = query_.inputs[static_cast<size_t>(i)];
      LoopBuffer buffer{.place = {Base::kInput, i, 0, 0}};
      if (is_state(i)) {
        buffer.place.base = Base::kOutput;
        buffer.state = i;
        out_.state_bytes.push_back(loop_bytes(spec));
      } else if (i < out_.states + out_.rows) {
        spec.shape.erase(0);
        spec.strides.erase(0);
        buffer.place.row = loop_bytes(spec);
      }
      values_.push_back({i, 0, spec});
      buffer_of_.push_back(i);
      buffers_.push_back(buffer);
    }
  }

  void add_results() {
    for (const AttrCall& call : program_.calls) {
      for (const TensorSpec& result : call.results) {
        LoopValue value{static_cast<int>(values_.size()), 0, result};
        // A window is no value of its own: it is its operand's memory from an offset on.
        if (call.op == plan::kWindow) {
          const LoopValue& of = values_.at(static_cast<size_t>(call.operands.at(0)));
          value.root = of.root;
          value.offset = of.offset + static_cast<uint64_t>(get_attr<int64_t>(call.attrs, "offset"));
        }
        values_.push_back(value);
        buffer_of_.push_back(-1);
      }
    }
    last_read_.assign(values_.size(), kBeforeCalls);
  }

  // A state that a turn leaves as it is needs no copy; what is made of another state is copied before that is changed.
  bool unchanged(size_t output) const {
    const int value = program_.outputs[output];
    return is_state(static_cast<int>(output)) && value == static_cast<int>(output);
  }
  bool copied_before(size_t output) const { return is_state(root(program_.outputs[output])); }
  int root(int value) const { return values_[static_cast<size_t>(value)].root; }

  void note_reads() {
    for (int64_t i = 0; i < end_; ++i) {
      const AttrCall& call = program_.calls[static_cast<size_t>(i)];
      if (call.op == plan::kWindow) continue;
      for (const int operand : call.operands)
        if (operand != kNoOperand) last_read_[static_cast<size_t>(root(operand))] = i;
    }
    for (size_t o = 0; o < program_.outputs.size(); ++o)
      if (!copied_before(o)) last_read_[static_cast<size_t>(root(program_.outputs[o]))] = end_;
    for (int i = 0; i < program_.inputs; ++i)
      buffers_[static_cast<size_t>(i)].last = last_read_[static_cast<size_t>(i)];
    // Until the turn's end, a state that stays has to be there.
    for (int i = 0; i < out_.states; ++i)
      if (unchanged(static_cast<size_t>(i))) buffers_[static_cast<size_t>(i)].last = end_;
  }

  void add_call(const AttrCall& call, int64_t at, int first) {
    plan::KernelQuery query{.op = call.op,
                            .attrs = call.attrs,
                            .inputs = {},
                            .outputs = call.results,
                            .device = query_.device,
                            .cores = query_.cores};
    LoopCall made;
    for (const int operand : call.operands) {
      query.inputs.push_back(operand == kNoOperand ? TensorSpec{} : values_[static_cast<size_t>(operand)].spec);
      made.inputs.push_back(operand == kNoOperand ? LoopPlace{} : place_later(operand));
    }
    const KernelDef& def = context_.kernels->get(call.op, query_.device.kind);
    made.kernel = def.prepare(query, context_);
    made.branches = def.branches;
    for (const int operand : call.operands) made.read.push_back(operand == kNoOperand ? -1 : root(operand));
    for (int o = 0; o < call.num_results(); ++o) made.written.push_back(first + o);
    std::vector<int> taken;
    for (int o = 0; o < call.num_results(); ++o) {
      const int value = first + o;
      const int buffer = buffer_for(value, o, call, def, at, taken);
      taken.push_back(buffer);
      buffer_of_[static_cast<size_t>(value)] = buffer;
      LoopBuffer& b = buffers_[static_cast<size_t>(buffer)];
      b.last = std::max({b.last, at, last_read_[static_cast<size_t>(value)]});
      b.bytes = std::max(b.bytes, values_[static_cast<size_t>(value)].spec.extent_bytes());
      made.outputs.push_back(place_later(value));
    }
    if (made.kernel->workspace_bytes() > 0) {
      const uint64_t bytes = made.kernel->workspace_bytes();
      made.workspace = {Base::kWorkspace, new_buffer(at, at, bytes), 0, 0};
    }
    out_.calls.push_back(std::move(made));
  }

  // Which state's next value it is, or that of several; -1: of none.
  bool next_of(int value, int state) const { return program_.outputs[static_cast<size_t>(state)] == value; }
  int state_of(int value) const {
    for (int i = 0; i < out_.states; ++i)
      if (next_of(value, i)) return i;
    return -1;
  }

  // The cheapest place comes first: the state whose next value this is, if its old content is no longer read; then the
  // row of a stacked result; then an operand that the kernel may write over; and else new memory in the workspace.
  int buffer_for(int value, int output, const AttrCall& call, const KernelDef& def, int64_t at,
                 const std::vector<int>& taken) {
    const int state = state_of(value);
    const auto free = [&](int b) { return std::find(taken.begin(), taken.end(), b) == taken.end(); };
    if (state >= 0 && free(state) &&
        (buffers_[static_cast<size_t>(state)].last < at || overwritten(value, output, call, def, at, state)))
      return state;
    const auto& outputs = program_.outputs;
    if (state < 0) {
      for (size_t o = static_cast<size_t>(out_.states); o < outputs.size(); ++o)
        if (outputs[o] == value && contiguous(value)) return row_buffer(o);
      const bool lasts = last_read_[static_cast<size_t>(value)] == end_;  // while new states are written
      for (const int operand : call.operands) {
        if (operand == kNoOperand) continue;
        const int b = buffer_of_[static_cast<size_t>(root(operand))];
        const LoopBuffer& buffer = buffers_[static_cast<size_t>(b)];
        if ((buffer.own || (buffer.state >= 0 && !lasts)) && free(b) && overwritten(value, output, call, def, at, b))
          return b;
      }
    }
    return new_buffer(at, at, values_[static_cast<size_t>(value)].spec.extent_bytes());
  }

  bool contiguous(int value) const {
    const TensorSpec& spec = values_[static_cast<size_t>(value)].spec;
    return is_contiguous(spec.shape, spec.strides);
  }

  // May the kernel write the value over what is in the buffer, the whole of which it reads once?
  bool overwritten(int value, int output, const AttrCall& call, const KernelDef& def, int64_t at, int buffer) const {
    if (buffers_[static_cast<size_t>(buffer)].last > at) return false;
    int reads = 0;
    bool legal = false;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const int operand = call.operands[i];
      if (operand == kNoOperand || buffer_of_[static_cast<size_t>(root(operand))] != buffer) continue;
      ++reads;
      const LoopValue& lying = values_[static_cast<size_t>(operand)];
      const bool pair = std::any_of(def.in_place.begin(), def.in_place.end(), [&](const plan::InPlacePair& p) {
        return p.output == output && p.input == static_cast<int>(i);
      });
      legal = pair && lying.root == operand && lying.spec == values_[static_cast<size_t>(value)].spec;
    }
    return reads == 1 && legal;
  }

  int row_buffer(size_t output) {
    const TensorSpec& whole = query_.outputs[output];
    const uint64_t rows = static_cast<uint64_t>(std::max<int64_t>(whole.shape[0], 1));
    buffers_.push_back({.place = {Base::kOutput, static_cast<int>(output), 0, loop_bytes(whole) / rows}});
    in_rows_.push_back(output);
    return static_cast<int>(buffers_.size()) - 1;
  }

  int new_buffer(int64_t begin, int64_t last, uint64_t bytes) {
    const int index = static_cast<int>(buffers_.size());
    buffers_.push_back(
        {.place = {Base::kWorkspace, index, 0, 0}, .own = true, .begin = begin, .last = last, .bytes = bytes});
    return index;
  }

  // Until pack(), a place in the workspace names its buffer.
  // Buffers are packed only when all their lives are known.
  LoopPlace place_later(int value) const {
    const LoopValue& lying = values_[static_cast<size_t>(value)];
    LoopPlace place = buffers_[static_cast<size_t>(buffer_of_[static_cast<size_t>(lying.root)])].place;
    place.offset += lying.offset;
    return place;
  }

  void add_copies() {
    std::vector<LoopCopy> states;
    for (size_t o = 0; o < program_.outputs.size(); ++o) {
      const int value = program_.outputs[o];
      const bool state = is_state(static_cast<int>(o));
      if (unchanged(o) || std::find(in_rows_.begin(), in_rows_.end(), o) != in_rows_.end()) continue;
      if (state && buffer_of_[static_cast<size_t>(value)] == static_cast<int>(o)) continue;
      const TensorSpec& as = values_[static_cast<size_t>(value)].spec;
      const TensorSpec plain = TensorSpec::contiguous({as.dtype, as.shape});
      LoopPlace to = state ? buffers_[o].place : buffers_[static_cast<size_t>(row_buffer(o))].place;
      // A result that is another state's old value has to be copied before this turn changes that state; the others are
      // copied when the turn has made them.
      if (!copied_before(o)) {
        (state ? states : out_.after).push_back({place_later(value), to, as});
      } else if (!state) {
        out_.before.push_back({place_later(value), to, as});
      } else {
        // A state whose next value is another state's old one: the old content is kept aside first, since both may
        // change in this turn.
        const int kept = new_buffer(kBeforeCalls, end_, loop_bytes(as));
        out_.before.push_back({place_later(value), buffers_[static_cast<size_t>(kept)].place, as});
        states.push_back({buffers_[static_cast<size_t>(kept)].place, to, plain});
      }
    }
    out_.after.insert(out_.after.end(), states.begin(), states.end());
  }

  void pack() {
    std::vector<plan::Interval> intervals;
    for (const LoopBuffer& b : buffers_)
      intervals.push_back(b.own ? plan::Interval{b.begin, b.last + 1, b.bytes} : plan::Interval{});
    const plan::Packing packing = plan::pack(intervals);
    const auto settle = [&](LoopPlace& place) {
      if (place.base == Base::kWorkspace) place.offset += packing.offsets[static_cast<size_t>(place.index)];
    };
    for (LoopCall& call : out_.calls) {
      for (LoopPlace& place : call.inputs) settle(place);
      for (LoopPlace& place : call.outputs) settle(place);
      settle(call.workspace);
    }
    for (std::vector<LoopCopy>* copies : {&out_.before, &out_.after}) {
      for (LoopCopy& copy : *copies) {
        settle(copy.from);
        settle(copy.to);
      }
    }
    out_.workspace_bytes = packing.bytes;
  }

  const plan::KernelQuery& query_;
  const PrepareContext& context_;
  const AttrGraph& program_;
  int64_t end_ = 0;
  LoopLayout out_;
  std::vector<LoopValue> values_;
  std::vector<int> buffer_of_;       // per value that is no window
  std::vector<int64_t> last_read_;   // per value, of itself and windows on it
  std::vector<LoopBuffer> buffers_;  // those of the inputs come first
  std::vector<size_t> in_rows_;      // outputs that lie where they are wanted
};

}  // namespace

LoopLayout lay_out_loop(const plan::KernelQuery& query, const PrepareContext& context) {
  SLUICE_CHECK_KIND(kRuntime, context.kernels != nullptr, "loop: prepared without a table of kernels");
  return LoopLayouts(query, context).run();
}

}  // namespace sluice::cpu
