#include "kernels/cpu/generated/row_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/scalar_ops.h"
#include "kernels/cpu/rows/row_lines.h"
#include "kernels/cpu/support/support.h"

namespace sluice::generated {
namespace {

using cpu::ReductionKind;
using cpu::RowProgram;
using Home = RowProgram::Home;

const char* type_of(DType dtype) { return dtype == DType::kBool ? "bool" : "float"; }

const char* kind_of(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kProd: return "kProd";
    case ReductionKind::kMax: return "kMax";
    case ReductionKind::kMin: return "kMin";
    default: return "kSum";
  }
}

// A step on values. A compiler may round a product and a sum as one: within a step as in the step's own loop, but never
// a product that ends a step with what follows it (so the result is `rounded`), nor otherwise than in that loop because
// another step computes the same product (so the operands are, which makes them others to the compiler).
struct Step {
  std::string text;
  bool multiplies = false, has_parts = false;
};

class RowWriter {
 public:
  RowWriter(const plan::KernelQuery& query, const cpu::RowLines& lie, const RowProgram& program)
      : body_(get_attr<AttrGraph>(query.attrs, "body")),
        program_(program),
        nest_(lie.rows(query)),
        length_(lie.length()) {}

  // False: it has a step without text.
  bool write(RowSource& source) {
    for (int v = body_.inputs; v < static_cast<int>(values().size()); ++v)
      if (is_step(v) && value(v).made >= 0 && step(v).text.empty()) return false;
    for (int v = body_.inputs; v < static_cast<int>(values().size()); ++v)
      if (is_step(v) && value(v).made >= 0 && value(v).row) rows_.push_back(v);
    begin();
    for (size_t p = 0; p < program_.phases().size(); ++p) phase(static_cast<int>(p));
    source = {head() + text_ + "  }\n}\n", space_, nest_.size(), length_, program_.heavy()};
    return true;
  }

 private:
  const std::vector<RowProgram::Value>& values() const { return program_.values(); }
  const RowProgram::Value& value(int v) const { return values()[static_cast<size_t>(v)]; }
  const AttrCall& call_of(int v) const { return body_.calls[static_cast<size_t>(v - body_.inputs)]; }
  bool is_step(int v) const { return v >= body_.inputs && !cpu::folds_rows(call_of(v).op); }
  void add(int depth, const std::string& line) {
    text_ += std::string(static_cast<size_t>(2 * depth), ' ') + line + "\n";
  }

  // `hidden`: the zero by which operands are hidden; "": they are not.
  Step step(int v, const std::string& hidden = "") const {
    const AttrCall& call = call_of(v);
    const auto name = [&](size_t k) {
      return fmt::format(fmt::runtime(hidden.empty() ? "v{}" : "rounded(v{}, {})"), call.operands.at(k), hidden);
    };
    if (call.op == "where") return {fmt::format("{} ? {} : {}", name(0), name(1), name(2))};
    if (call.op == "cast") {
      if (get_attr<DType>(call.attrs, "dtype") == DType::kBool) return {name(0) + " != 0"};
      return {fmt::format("static_cast<float>({})", name(0))};
    }
    const ScalarOp* const op = find_scalar_op(call.op, call.attrs);
    // Remainders are loops of another kind.
    if (op == nullptr || op->floating == nullptr || op->bad != nullptr || op->gives_real) return {};
    for (const int operand : call.operands)
      if (value(operand).dtype == DType::kBool) return {};
    const std::string_view expression = op->floating;
    const bool multiplies = !op->gives_bool && expression.find_first_of("*(") != std::string_view::npos;
    return {fmt::format("{}{}{}_step({}{})", op->name, *op->mode == '\0' ? "" : "_", op->mode, name(0),
                        op->inputs == 2 ? ", " + name(1) : ""),
            multiplies, multiplies && expression != "a * b"};
  }

  // The start of an operand's row number r, in elements.
  std::string place(int input) const {
    std::string text;
    const auto axis = [&](int64_t stride, const std::string& index) {
      if (stride != 0) text += fmt::format(" + {} * {}", index, stride);
    };
    int64_t inside = nest_.inner();
    const bool one_axis = nest_.outer_rank() == 0;
    axis(nest_.inner_stride(input), one_axis ? "r" : fmt::format("r % {}", inside));
    for (int a = nest_.outer_rank() - 1; a >= 0; inside *= nest_.outer_dim(a--))
      axis(nest_.outer_stride(input, a),
           a == 0 ? fmt::format("r / {}", inside) : fmt::format("r / {} % {}", inside, nest_.outer_dim(a)));
    return text;
  }

  // Memory of a value's elements.
  static std::string memory(const RowProgram::Value& value, size_t v) {
    switch (value.home) {
      case Home::kInput: return fmt::format("x{}", value.index);
      case Home::kOutput: return fmt::format("y{}", value.index);
      default: return fmt::format("k{}", v);
    }
  }

  std::string head() const {
    return fmt::format(
        "#include \"kernels/cpu/generated/prelude.h\"\n\nconstexpr int64_t kLength = {};\n\n"
        "extern \"C\" void {}(const void* const* in, void* const* out, [[maybe_unused]] void* space, int64_t begin, "
        "int64_t end) {{\n  [[maybe_unused]] const int32_t zero = kZero;\n{}",
        length_, kRowsFunction, zeros_);
  }

  // The places of a row's operands, and of what is kept of it.
  void begin() {
    add(1, "for (int64_t r = begin; r < end; ++r) {");
    for (size_t v = 0; v < values().size(); ++v) {
      const RowProgram::Value& value = values()[v];
      const char* const type = type_of(value.dtype);
      if (value.home == Home::kInput)
        add(2, fmt::format("[[maybe_unused]] const {0}* const x{1} = static_cast<const {0}*>(in[{1}]){2};", type,
                           value.index, place(value.index)));
      if (value.home == Home::kOutput)
        add(2, fmt::format("{0}* const y{1} = static_cast<{0}*>(out[{1}]) + r{2};", type, value.index,
                           value.row ? "" : " * kLength"));
      if (value.home == Home::kInput && value.row) add(2, fmt::format("const {} v{} = *x{};", type, v, value.index));
    }
    for (size_t v = 0; v < values().size(); ++v) {
      const RowProgram::Value& value = values()[v];
      if (value.row || (value.home != Home::kKept && value.home != Home::kRun)) continue;
      const char* const type = type_of(value.dtype);
      if (value.lender >= 0) {
        add(2, fmt::format("{}* const k{} = {};", type, v,
                           memory(values()[static_cast<size_t>(value.lender)], static_cast<size_t>(value.lender))));
      } else {
        add(2,
            fmt::format("{0}* const k{1} = reinterpret_cast<{0}*>(static_cast<char*>(space) + {2});", type, v, space_));
        space_ += static_cast<uint64_t>((length_ * value.size() + 63) / 64 * 64);
      }
    }
  }

  void phase(int p) {
    std::vector<int> steps;
    for (int v = body_.inputs; v < static_cast<int>(values().size()); ++v) {
      if (!is_step(v) || value(v).made != p) continue;
      if (value(v).row)
        define(2, v, rows_);
      else
        steps.push_back(v);
    }
    if (!steps.empty()) loop(steps);
    for (int v = body_.inputs; v < static_cast<int>(values().size()); ++v)
      if (!is_step(v) && value(v).made == p) fold(v);
  }

  // One of `steps`, which are computed side by side.
  void define(int depth, int v, const std::vector<int>& steps) {
    const auto multiply = std::count_if(steps.begin(), steps.end(), [&](int other) { return step(other).multiplies; });
    std::string hidden;
    if (step(v).has_parts && multiply > 1) {
      hidden = fmt::format("zero{}", v);
      zeros_ += fmt::format("  const int32_t {} = kZero;\n", hidden);
    }
    const Step made = step(v, hidden);
    add(depth, made.multiplies && is_read_by_steps(v)
                   ? fmt::format("const float v{} = rounded({}, zero);", v, made.text)
                   : fmt::format("const {} v{} = {};", type_of(value(v).dtype), v, made.text));
    if (value(v).home == Home::kOutput && value(v).row) add(depth, fmt::format("*y{} = v{};", value(v).index, v));
  }
  bool is_read_by_steps(int v) const {
    for (int reader = body_.inputs; reader < static_cast<int>(values().size()); ++reader)
      if (is_step(reader) && std::count(call_of(reader).operands.begin(), call_of(reader).operands.end(), v) > 0)
        return true;
    return false;
  }

  void loop(const std::vector<int>& steps) {
    add(2, "SLUICE_EACH for (int64_t i = 0; i < kLength; ++i) {");
    std::vector<bool> there(values().size(), false);
    for (const int v : steps) {
      for (const int operand : call_of(v).operands) {
        const auto at = static_cast<size_t>(operand);
        if (values()[at].row || there[at]) continue;
        there[at] = true;
        add(3, fmt::format("const {} v{} = {}[i];", type_of(values()[at].dtype), at, memory(values()[at], at)));
      }
      there[static_cast<size_t>(v)] = true;
      define(3, v, steps);
      const Home home = value(v).home;
      if (home == Home::kOutput || home == Home::kKept || home == Home::kRun)
        add(3, fmt::format("{}[i] = v{};", memory(value(v), static_cast<size_t>(v)), v));
    }
    add(2, "}");
  }

  void fold(int v) {
    for (const RowProgram::Reduction& reduction : program_.phases()[static_cast<size_t>(value(v).made)].reductions) {
      if (reduction.to != v) continue;
      const ReductionKind kind = *cpu::folds_rows(call_of(v).op);
      const bool squares = reduction.from != call_of(v).operands[0];
      add(2, fmt::format("const float v{} = fold_row{}<ReductionKind::{}>({}, kLength, zero);", v,
                         kind == ReductionKind::kMean ? "_to_mean" : "", squares ? "kSquares" : kind_of(kind),
                         memory(value(reduction.from), static_cast<size_t>(reduction.from))));
    }
    if (value(v).home == Home::kOutput) add(2, fmt::format("*y{} = v{};", value(v).index, v));
  }

  const AttrGraph& body_;
  const RowProgram& program_;
  const cpu::RowNest nest_;
  const int64_t length_;
  std::vector<int> rows_;     // steps for each row
  std::string text_, zeros_;  // of the loop over rows, and what stands in front of it
  uint64_t space_ = 0;
};

bool is_written(const RowProgram::Value& value) {
  return value.dtype == DType::kFloat32 || (value.dtype == DType::kBool && value.home != Home::kState);
}

}  // namespace

RowSource row_source(const plan::KernelQuery& query) {
  RowSource source;
  const cpu::RowLines lie(query);
  if (lie.length() <= cpu::kShortRow || lie.length() > cpu::kRun) return source;
  std::vector<DType> dtypes;
  std::vector<bool> rows;
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    const cpu::Line& line = lie.lines[i];
    if (lie.states[i] || !(line.repeats || (line.is_line && line.step == 1 && line.length == lie.length())))
      return source;
    dtypes.push_back(query.inputs[i].dtype);
    rows.push_back(line.repeats);
  }
  const RowProgram program(get_attr<AttrGraph>(query.attrs, "body"), dtypes, rows, true);
  if (!std::all_of(program.values().begin(), program.values().end(), is_written)) return source;
  RowWriter(query, lie, program).write(source);
  return source;
}

}  // namespace sluice::generated
