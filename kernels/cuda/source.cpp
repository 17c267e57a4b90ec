#include "kernels/cuda/source.h"

#include <algorithm>

#include "kernels/cuda/expressions.h"
#include "kernels/cuda/prelude.h"
#include "kernels/cuda/writer.h"

namespace sluice::cuda {
namespace {

using Nest = cpu::LoopNestOf<kMostFusedInputs + 1>;

std::string offset_text(const Nest& nest, int operand) {
  std::string text = nest.inner_stride(operand) == 0   ? std::string()
                     : nest.inner_stride(operand) == 1 ? "c"
                                                       : fmt::format("c * {}", nest.inner_stride(operand));
  for (int axis = nest.outer_rank() - 1; axis >= 0; --axis) {
    const int64_t stride = nest.outer_stride(operand, axis);
    if (stride != 0) text += fmt::format("{}c{} * {}", text.empty() ? "" : " + ", axis, stride);
  }
  return text.empty() ? "0" : text;
}

// How many elements a thread takes at once: 16 bytes of the widest operand, where all lie dense in one order or are one
// element; fewer of long bodies, which are repeated for each.
int64_t elements_at_once(const plan::KernelQuery& query, const LoopBody& body, const Nest& nest) {
  constexpr size_t kLong = 6000;
  const size_t inputs = query.inputs.size();
  if (nest.outer_rank() > 0 || nest.inner_stride(static_cast<int>(inputs)) != 1) return 1;
  size_t widest = dtype_size(query.outputs[0].dtype);
  for (size_t k = 0; k < inputs; ++k) {
    const int64_t stride = nest.inner_stride(static_cast<int>(k));
    if (stride != 0 && stride != 1) return 1;
    if (stride == 1) widest = std::max(widest, dtype_size(query.inputs[k].dtype));
  }
  const size_t text = body.functions.size() + body.before.size();
  return text > 2 * kLong || widest > 8 ? 1
                                        : std::min<int64_t>(16 / static_cast<int64_t>(widest), text > kLong ? 2 : 8);
}

// The loop over packs of so many elements.
std::string pack_loop(const LoopBody& body, const Nest& nest, int64_t pack) {
  const int64_t size = nest.size(), packs = (size + pack - 1) / pack;
  std::string text = fmt::format(
      "  for (Index j = (Index)first_index(); j < {}; j += (Index)index_step()) {{\n    const Index i = j * {};\n"
      "    const int count = {};\n",
      packs, pack,
      size % pack == 0 ? fmt::format("{}", pack) : fmt::format("i + {0} <= {1} ? {0} : (int)({1} - i)", pack, size));
  for (size_t k = 0; k < body.input_types.size(); ++k) {
    if (nest.inner_stride(static_cast<int>(k)) == 1)
      text += fmt::format("    const auto p{0} = load_part<{1}>(in{0} + i, count);\n", k, pack);
  }
  text += fmt::format(
      "    Pack<{0}, {1}> made = {{}};\n#pragma unroll\n    for (int k = 0; k < {1}; ++k) {{\n"
      "    if (k >= count) break;\n",
      body.output_type, pack);
  for (size_t k = 0; k < body.input_types.size(); ++k) {
    text += fmt::format(
        "    const auto x{0} = load({1});\n", k,
        nest.inner_stride(static_cast<int>(k)) == 1 ? fmt::format("p{}.v[k]", k) : fmt::format("in{}[0]", k));
  }
  return text + body.before +
         fmt::format("    store(&made.v[k], {});\n    }}\n    store_part<{}>(out + i, made, count);\n  }}\n}}\n",
                     body.value, pack);
}

// The failure word says which op found it, and what.
Status describe(const int64_t* values) {
  const ScalarOp& op = scalar_ops()[static_cast<size_t>(values[0])];
  return {ErrorKind::kValue, scalar_error_text(op.name, op.error)};
}

void check_operands(const plan::KernelQuery& query, size_t inputs) {
  SLUICE_CHECK(query.inputs.size() == inputs && query.outputs.size() == 1,
               "{}: {} inputs and {} outputs; needs {} and 1", query.op, query.inputs.size(), query.outputs.size(),
               inputs);
}

}  // namespace

Source loop_source(const plan::KernelQuery& query, const LoopBody& body) {
  const TensorSpec& out = query.outputs[0];
  std::vector<Strides> strides;
  uint64_t largest = checked_bytes(out.shape, 1);
  for (const TensorSpec& in : query.inputs) {
    strides.push_back(cpu::broadcast_strides(in, out.shape));
    largest = std::max(largest, reach(in));
  }
  strides.push_back(out.strides);
  largest = std::max(largest, reach(out));
  const Nest nest(out.shape, strides);
  Source source;
  source.entry = "sluice_" + query.op;
  source.contract = false;
  const int64_t pack = elements_at_once(query, body, nest);
  source.blocks = blocks_for((nest.size() + pack - 1) / pack);
  for (size_t k = 0; k < query.inputs.size(); ++k) source.operands.push_back({Operand::From::kInput, k});
  source.operands.push_back({Operand::From::kOutput});
  std::string& text = source.text;
  text = kPrelude;
  for (size_t k = 0; k < query.inputs.size(); ++k) text += reach_note(fmt::format("in{}", k), query.inputs[k]);
  text += reach_note("out", out) + body.functions;
  text += fmt::format("typedef {} Index;\nextern \"C\" __global__ void {}(Failure* word, u64 ticket",
                      index_type(largest), source.entry);
  for (size_t k = 0; k < body.input_types.size(); ++k) text += fmt::format(", const {}* in{}", body.input_types[k], k);
  text += fmt::format(", {}* out) {{\n  if (failed(word, ticket)) return;\n", body.output_type);
  if (pack > 1) {
    text += pack_loop(body, nest, pack);
    return source;
  }
  text += fmt::format("  for (Index i = (Index)first_index(); i < {}; i += (Index)index_step()) {{\n", nest.size());
  if (nest.outer_rank() == 0) {
    text += "    const Index c = i;\n";
  } else {
    text += fmt::format("    Index rest = i / {0};\n    const Index c = i % {0};\n", nest.inner());
    for (int axis = nest.outer_rank() - 1; axis >= 0; --axis) {
      text += axis > 0
                  ? fmt::format("    const Index c{0} = rest % {1};\n    rest /= {1};\n", axis, nest.outer_dim(axis))
                  : "    const Index c0 = rest;\n";
    }
  }
  for (size_t k = 0; k < body.input_types.size(); ++k) {
    text += fmt::format("    const auto x{0} = load(in{0}[{1}]);\n", k, offset_text(nest, static_cast<int>(k)));
  }
  text += body.before;
  text += fmt::format("    store(out + ({}), {});\n  }}\n}}\n",
                      offset_text(nest, static_cast<int>(body.input_types.size())), body.value);
  return source;
}

Source elementwise_source(const plan::KernelQuery& query) {
  const ScalarOp* op = find_scalar_op(query.op, query.attrs);
  SLUICE_CHECK_KIND(kUnsupported, op != nullptr, "{}: no cuda kernel; place it on cpu", query.op);
  check_operands(query, static_cast<size_t>(op->inputs));
  const DType dtype = query.inputs[0].dtype;
  const char* expression = expression_text(*op, dtype);
  SLUICE_CHECK_KIND(kUnsupported, expression != nullptr, "{}: no cuda kernel for {}; cast it first", query.op,
                    dtype_name(dtype));
  LoopBody body;
  for (const TensorSpec& in : query.inputs) body.input_types.emplace_back(c_type(in.dtype));
  body.output_type = c_type(query.outputs[0].dtype);
  const bool fallible = !is_floating(dtype) && op->bad != nullptr;
  const char* second = op->inputs == 2 ? ", T b" : "";
  body.functions = functions_for(expression) +
                   fmt::format("typedef {} T;\ntypedef {} R;\n__device__ inline R f(T a{}) {{ return {}; }}\n",
                               compute_type(dtype), op->gives_bool ? "bool" : "T", second, expression);
  body.value = op->inputs == 2 ? "f(x0, x1)" : "f(x0)";
  if (fallible) {
    body.functions += fmt::format("__device__ inline bool bad(T a, T b) {{ return {}; }}\n", op->bad);
    body.before = fmt::format("    if (bad(x0, x1)) {{\n      raise(word, ticket, {});\n      continue;\n    }}\n",
                              op - scalar_ops().data());
  }
  Source source = loop_source(query, body);
  if (fallible) source.describe = describe;
  return source;
}

Source cast_source(const plan::KernelQuery& query) {
  check_operands(query, 1);
  LoopBody body;
  const DType from = query.inputs[0].dtype, to = query.outputs[0].dtype;
  body.input_types = {c_type(from)};
  body.output_type = c_type(to);
  body.value = to == DType::kBool ? "x0 != 0" : fmt::format("({})x0", compute_type(from));
  return loop_source(query, body);
}

Source where_source(const plan::KernelQuery& query) {
  check_operands(query, 3);
  const char* bits = bits_type(dtype_size(query.outputs[0].dtype));
  LoopBody body;
  body.input_types = {"u8", bits, bits};
  body.output_type = bits;
  body.value = "x0 ? x1 : x2";
  return loop_source(query, body);
}

Source copy_source(const plan::KernelQuery& query) {
  check_operands(query, 1);
  const char* bits = bits_type(dtype_size(query.outputs[0].dtype));
  LoopBody body;
  body.input_types = {bits};
  body.output_type = bits;
  body.value = "x0";
  return loop_source(query, body);
}

}  // namespace sluice::cuda
