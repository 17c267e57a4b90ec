// Elementwise steps with reductions of rows among them: a team for a row. Steps are computed in each loop that needs
// them, so that nothing is kept, and rounded as if they were stored.
#include "kernels/cpu/reduction/reduction.h"
#include "kernels/cpu/rows/row_lines.h"
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/steps.h"

namespace sluice::cuda {
namespace {

// The first value of a reduction, and the op that joins two values.
struct Join {
  const char *first, *op;
};
Join join_of(cpu::ReductionKind kind) {
  switch (kind) {
    case cpu::ReductionKind::kProd: return {"1", "mul"};
    case cpu::ReductionKind::kMax: return {"-INFINITY", "maximum"};
    case cpu::ReductionKind::kMin: return {"INFINITY", "minimum"};
    default: return {"0", "add"};
  }
}

class RowsWriter {
 public:
  explicit RowsWriter(const plan::KernelQuery& query)
      : query_(query),
        lie_(query),
        calls_(get_attr<AttrGraph>(query.attrs, "body")),
        body_(calls_, lie_),
        writer_(query, 0, numel(lie_.whole)) {}

  Generated write() {
    describe();
    int64_t units = 1;
    for (int axis = 0; axis < lie_.whole.rank() - lie_.axes; ++axis) units *= lie_.whole[axis];
    std::string text = "  const Index o = inside ? unit : 0;\n";
    for (const int v : body_.rows()) text += body_.folds(v) ? fold(v) : "  " + make(v);
    std::vector<int> elements;
    for (const int v : calls_.outputs)
      if (!body_.is_row(v)) elements.push_back(v);
    if (!elements.empty()) text += loop(elements, stores(false, "    "));
    text += "  if (inside && member() == 0) {\n" + stores(true, "    ") + "  }\n";
    Source source = writer_.teams("", units, team_for(lie_.length(), false), text);
    source.contract = false;
    return {{std::move(source)}};
  }

 private:
  // Types of values, functions of steps, and where operands lie.
  void describe() {
    std::string functions;
    for (const TensorSpec& in : query_.inputs) dtypes_.push_back(in.dtype);
    for (const AttrCall& call : calls_.calls) {
      const auto v = static_cast<int>(dtypes_.size());
      StepText text;
      if (body_.folds(v)) {
        text.dtype = dtypes_.at(static_cast<size_t>(call.operands[0]));
        functions += join_function(v, text.dtype);
      } else {
        text = text_of(call, dtypes_.size(), dtypes_);
        functions += text.function;
      }
      dtypes_.push_back(text.dtype);
      steps_.push_back(std::move(text));
    }
    writer_.constant("kLength", lie_.length());
    writer_.add(functions_for(functions) + kRounding + functions);
    for (size_t k = 0; k < query_.inputs.size(); ++k) add_places(fmt::format("in{}", k), query_.inputs[k]);
    for (size_t k = 0; k < query_.outputs.size(); ++k) add_places(fmt::format("out{}", k), query_.outputs[k]);
  }

  std::string join_function(int v, DType dtype) const {
    const char* const type = compute_type(dtype);
    const ScalarOp& op = *find_scalar_op(join_of(*cpu::folds_rows(body_.call_of(v)->op)).op);
    return fmt::format(
        "struct A{0} {{ {1} v; }};\nstruct Join{0} {{\n  typedef {1} T;\n  static __device__ inline T f(T a, T b) {{ "
        "return {2}; }}\n}};\n__device__ inline A{0} join(A{0} a, A{0} b) {{ return A{0}{{Join{0}::f(a.v, b.v)}}; }}\n",
        v, type, expression_text(op, dtype));
  }

  // "in0_row(o) + in0_at(i)": where an element lies.
  void add_places(const std::string& name, const TensorSpec& spec) {
    const Strides strides = cpu::broadcast_strides(spec, lie_.whole);
    Shape rows, row;
    Strides row_strides, strides_in_row;
    for (int axis = 0; axis < lie_.whole.rank(); ++axis) {
      const bool around = axis < lie_.whole.rank() - lie_.axes;
      (around ? rows : row).push_back(lie_.whole[axis]);
      (around ? row_strides : strides_in_row).push_back(strides[axis]);
    }
    writer_.add(index_function(name + "_row", rows, row_strides) + index_function(name + "_at", row, strides_in_row));
  }

  std::string make(int v) const {
    if (body_.call_of(v) != nullptr)
      return definition(steps_[static_cast<size_t>(v - calls_.inputs)], static_cast<size_t>(v)) + "\n";
    return fmt::format("const {0} v{1} = load(in{1}[in{1}_row(o){2}]);\n",
                       compute_type(dtypes_[static_cast<size_t>(v)]), v,
                       body_.is_row(v) ? "" : fmt::format(" + in{}_at(i)", v));
  }

  std::string stores(bool rows, const char* indent) const {
    std::string text;
    for (size_t k = 0; k < calls_.outputs.size(); ++k)
      if (body_.is_row(calls_.outputs[k]) == rows)
        text += fmt::format("{}store(out{} + out{}_row(o){}, v{});\n", indent, k, k,
                            rows ? "" : fmt::format(" + out{}_at(i)", k), calls_.outputs[k]);
    return text;
  }

  std::string loop(const std::vector<int>& values, const std::string& end) const {
    std::string text = "  for (Index i = member(); inside && i < kLength; i += kTeam) {\n";
    for (const int v : body_.elements(values)) text += "    " + make(v);
    return text + end + "  }\n";
  }

  std::string fold(int v) const {
    const AttrCall& call = *body_.call_of(v);
    const DType dtype = dtypes_[static_cast<size_t>(v)];
    const cpu::ReductionKind kind = *cpu::folds_rows(call.op);
    return fmt::format("  A{0} mine{0} = {{{1}}};\n", v, join_of(kind).first) +
           loop({call.operands[0]}, fmt::format("    mine{0} = join(mine{0}, A{0}{{v{1}}});\n", v, call.operands[0])) +
           fmt::format(
               "  const {0} v{1} = rounded<{2}>(over_team(mine{1}).v{3});\n", compute_type(dtype), v, c_type(dtype),
               kind == cpu::ReductionKind::kMean ? fmt::format(" / ({}){}", compute_type(dtype), lie_.length()) : "");
  }

  const plan::KernelQuery& query_;
  const cpu::RowLines lie_;
  const AttrGraph& calls_;
  const cpu::RowBody body_;
  Writer writer_;
  std::vector<DType> dtypes_;    // of values
  std::vector<StepText> steps_;  // of calls; of reductions only the dtype
};

Generated fused_rows(const plan::KernelQuery& query) { return RowsWriter(query).write(); }

}  // namespace

void add_fused_rows_kernel(KernelTable& table) {
  add_generated(table, "fused_rows", fused_rows);
  for (const std::string_view op : cpu::ops_that_fold_rows()) {
    KernelDef def = table.get(std::string(op), DeviceKind::kCuda);
    def.can_fuse = table.get(std::string(op), DeviceKind::kCpu).can_fuse;
    table.replace(DeviceKind::kCuda, std::move(def));
  }
}

}  // namespace sluice::cuda
