#include "kernels/cpu/rows/row_program.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::cpu {

class RowProgram::Builder {
 public:
  Builder(RowProgram& program, const AttrGraph& body, const std::vector<DType>& inputs, const std::vector<bool>& row)
      : program_(program), body_(body), values_(program.values_) {
    const std::vector<bool> states = states_of(body);
    for (size_t i = 0; i < inputs.size(); ++i)
      values_.push_back({inputs[i], row[i], states[i] ? Home::kState : Home::kInput, static_cast<int>(i)});
    for (const AttrCall& call : body.calls) add_value(call);
    for (size_t k = 0; k < body.outputs.size(); ++k) {
      Value& value = values_[static_cast<size_t>(body.outputs[k])];
      SLUICE_CHECK_KIND(kUnsupported, body.outputs[k] >= body.inputs && value.home != Home::kOutput,
                        "fused_rows: output {} is an input, or another output; must be made for it alone", k);
      value.home = Home::kOutput;
      value.index = static_cast<int>(k);
    }
    // A phase is one walk over a row. A reduction ends a phase, because its result is known only when the whole row has
    // been folded; steps that need the result are in a later phase. Homes follow from the phases: a value that a later
    // phase reads has to be kept.
    choose_phases();
    choose_homes();
    for (int p = 0; p < num_phases_; ++p) program.phases_.push_back(make_phase(p));
    for (Value& value : values_)
      if (value.home == Home::kKept) value.lender = lender_of(value);
  }

 private:
  const AttrCall& call_of(int value) const { return body_.calls[static_cast<size_t>(value - body_.inputs)]; }
  static bool folds(const AttrCall& call) { return folds_rows(call.op).has_value(); }
  static bool is_as_computed(DType dtype) { return is_tile(dtype, tile_type(dtype)); }
  // A sum of squares folds what is squared, so that nobody keeps the squares: they have the bits of a step's.
  bool folds_squares(int value) const {
    if (value < body_.inputs || !folds(call_of(value))) return false;
    const int from = call_of(value).operands[0];
    if (from < body_.inputs || call_of(from).op != "mul") return false;
    const ReductionKind kind = *folds_rows(call_of(value).op);
    if (kind != ReductionKind::kSum && kind != ReductionKind::kMean) return false;
    const std::vector<int>& factors = call_of(from).operands;
    return factors[0] == factors[1] && is_as_computed(values_[static_cast<size_t>(from)].dtype);
  }
  // A sum of squares reads the operand of the product itself, so that the product need not be made at all.
  std::vector<int> read_by(int value) const {
    return folds_squares(value) ? std::vector<int>{call_of(call_of(value).operands[0]).operands[0]}
                                : call_of(value).operands;
  }
  // A step for each element.
  bool is_full(int value) const { return value >= body_.inputs && !values_[static_cast<size_t>(value)].row; }

  void add_value(const AttrCall& call) {
    Value made(DType::kFloat32);
    int level = 0;
    bool row = true;
    std::vector<DType> dtypes;
    AttrCall alone = call;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const auto operand = static_cast<size_t>(call.operands[i]);
      row = row && values_[operand].row;
      level = std::max(level, level_of(call.operands[i]));
      dtypes.push_back(values_[operand].dtype);
      alone.operands[i] = static_cast<int>(i);
    }
    if (folds(call)) {
      SLUICE_CHECK_KIND(kUnsupported, !row && is_floating(dtypes[0]),
                        "fused_rows: step {} of {}{}; must be of floating elements of a row", call.op,
                        dtype_name(dtypes[0]), row ? ", one for each row" : "");
      made = Value(dtypes[0]);
      row = true;
      ++level;
    } else {
      const int n = static_cast<int>(dtypes.size());
      // The dtype of a step is the one that a fused program of this step alone would give, so that both agree on
      // rounding.
      made = Value(FusedProgram({n, {alone}, {n}}, dtypes).outputs()[0]);
    }
    made.row = row;
    made.home = row ? Home::kRow : Home::kPassing;
    values_.push_back(made);
    levels_.push_back(level);
  }

  // The first phase that can read it.
  int level_of(int value) const {
    return value < body_.inputs ? 0 : levels_[static_cast<size_t>(value - body_.inputs)];
  }

  // Steps of elements run as late as their readers allow, so that as little as possible is kept; those of rows as early
  // as they can.
  void choose_phases() {
    const size_t count = values_.size();
    // Values that no output needs are not computed. Readers come behind what they read, so one walk from the end finds
    // all that is used.
    std::vector<bool> used(count, false);
    for (int output : body_.outputs) used[static_cast<size_t>(output)] = true;
    for (int v = static_cast<int>(count) - 1; v >= body_.inputs; --v) {
      if (!used[static_cast<size_t>(v)]) continue;
      num_phases_ = std::max(num_phases_, level_of(v) + 1);
      for (int operand : read_by(v)) used[static_cast<size_t>(operand)] = true;
    }
    phase_.assign(count, -1);
    last_.assign(count, -1);
    for (int v = static_cast<int>(count) - 1; v >= body_.inputs; --v) {
      const auto at = static_cast<size_t>(v);
      if (!used[at]) continue;
      if (folds(call_of(v)))
        // A reduction folds in the phase before the first one that can read it.
        phase_[at] = level_of(v) - 1;
      else if (values_[at].row)
        phase_[at] = level_of(v);
      else if (phase_[at] < 0)
        phase_[at] = num_phases_ - 1;
      for (int operand : read_by(v)) {
        const auto from = static_cast<size_t>(operand);
        last_[from] = std::max(last_[from], phase_[at]);
        // An operand of elements must be made in the earliest phase that reads it.
        if (is_full(operand)) phase_[from] = phase_[from] < 0 ? phase_[at] : std::min(phase_[from], phase_[at]);
        if (is_full(v) && !folds(call_of(v))) values_[from].in_elements = true;
      }
    }
  }

  void choose_homes() {
    for (int v = body_.inputs; v < static_cast<int>(values_.size()); ++v)
      if (phase_[static_cast<size_t>(v)] >= 0 && folds(call_of(v)))
        values_[static_cast<size_t>(read_by(v)[0])].folded = true;
    for (size_t v = 0; v < values_.size(); ++v) {
      Value& value = values_[v];
      value.made = phase_[v];
      value.read = last_[v];
      if (!is_full(static_cast<int>(v)) || phase_[v] < 0) continue;
      // A value that only steps of its own phase read passes in a tile. One that is folded is needed for a run of
      // tiles, and one that a later phase reads for the whole row.
      value.read_again = value.folded || last_[v] > phase_[v];
      if (value.home == Home::kPassing && value.read_again)
        value.home = last_[v] > phase_[v] ? Home::kKept : Home::kRun;
    }
  }

  // The steps of a phase that are for rows, or for elements, as a body of their own.
  std::optional<Steps> steps_of(int phase, bool rows) {
    AttrGraph body;
    std::vector<int> number(values_.size(), -1), in, out;
    std::vector<DType> dtypes;
    const auto for_steps = [&](auto f) {
      for (int v = body_.inputs; v < static_cast<int>(values_.size()); ++v)
        if (phase_[static_cast<size_t>(v)] == phase && values_[static_cast<size_t>(v)].row == rows &&
            !folds(call_of(v)))
          f(v);
    };
    for_steps([&](int v) {
      for (int operand : call_of(v).operands) {
        const auto at = static_cast<size_t>(operand);
        // Operands that are made in this phase are values of the new body; all others become its inputs.
        const bool here =
            operand >= body_.inputs && phase_[at] == phase && values_[at].row == rows && !folds(call_of(operand));
        if (here || number[at] >= 0) continue;
        number[at] = static_cast<int>(in.size());
        in.push_back(operand);
        dtypes.push_back(values_[at].dtype);
      }
    });
    body.inputs = static_cast<int>(in.size());
    for_steps([&](int v) {
      AttrCall call = call_of(v);
      for (int& operand : call.operands) operand = number[static_cast<size_t>(operand)];
      number[static_cast<size_t>(v)] = body.inputs + static_cast<int>(body.calls.size());
      body.calls.push_back(std::move(call));
      if (values_[static_cast<size_t>(v)].home != Home::kPassing) out.push_back(v);
    });
    if (body.calls.empty()) return std::nullopt;
    std::rotate(out.begin(), out.end() - 1, out.end());  // a program writes its first output last
    for (int v : out) body.outputs.push_back(number[static_cast<size_t>(v)]);
    std::vector<bool> ones;
    for (const int v : in) {
      const Value& value = values_[static_cast<size_t>(v)];
      ones.push_back(program_.alone_ && !rows && value.row && value.home != Home::kState);
    }
    Steps steps{FusedProgram(body, dtypes, ones), std::move(in), std::move(out)};
    SLUICE_CHECK_KIND(kUnsupported, !rows || !steps.program.random(),
                      "fused_rows: a random step for each row; must be for each element");
    program_.random_ |= steps.program.random();
    program_.heavy_ |= steps.program.heavy();
    program_.scratch_ = std::max(program_.scratch_, steps.program.scratch_per_element());
    return steps;
  }

  // A kept value may lie in the memory of an output that is written last and has elements of the same size: the row's
  // memory then stays within what the kernel writes anyway. An output lends to one value only.
  int lender_of(const Value& value) const {
    for (const Phase& phase : program_.phases_) {
      const int last = phase.elements ? phase.elements->out[0] : -1;
      if (last < 0) continue;
      const Value& result = values_[static_cast<size_t>(last)];
      const bool lends = std::any_of(values_.begin(), values_.end(), [&](const Value& v) { return v.lender == last; });
      if (result.home == Home::kOutput && !result.row && result.size() == value.size() && value.made < result.made &&
          value.read <= result.made && !lends)
        return last;
    }
    return -1;
  }

  Phase make_phase(int p) {
    Phase phase{steps_of(p, true), steps_of(p, false), {}};
    for (int v = body_.inputs; v < static_cast<int>(values_.size()); ++v) {
      if (phase_[static_cast<size_t>(v)] != p || !folds(call_of(v))) continue;
      const int from = read_by(v)[0];
      const DType dtype = values_[static_cast<size_t>(from)].dtype;
      phase.reductions.push_back({make_row_fold(*folds_rows(call_of(v).op), dtype, folds_squares(v)), from, v});
    }
    return phase;
  }

  RowProgram& program_;
  const AttrGraph& body_;
  std::vector<Value>& values_;
  std::vector<int> levels_;        // of calls
  std::vector<int> phase_, last_;  // by value: in which it is made, and read for the last time
  int num_phases_ = 1;
};

RowProgram::RowProgram(const AttrGraph& body, const std::vector<DType>& inputs, const std::vector<bool>& row,
                       bool alone)
    : alone_(alone) {
  check_attr_graph(body, inputs.size(), body.outputs.size());
  SLUICE_CHECK_KIND(kUnsupported, inputs.size() + body.calls.size() <= kMostValues,
                    "fused_rows: a body of {} values; must be at most {}", inputs.size() + body.calls.size(),
                    kMostValues);
  Builder(*this, body, inputs, row);
}

std::string RowProgram::error_text(int error) const {
  const Phase& phase = phases_[static_cast<size_t>(error >> 17)];
  return ((error >> 16) % 2 == 1 ? phase.rows : phase.elements)->program.error_text(error & 0xffff);
}

std::vector<bool> states_of(const AttrGraph& body) {
  std::vector<bool> states(static_cast<size_t>(body.inputs), false);
  for (const AttrCall& call : body.calls)
    if (call.op == "dropout" && call.operands[0] < body.inputs) states[static_cast<size_t>(call.operands[0])] = true;
  return states;
}

}  // namespace sluice::cpu
