// concat, pad, flip: strided copies into parts of the output. full and iota.
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

// An input, seen with other strides from `from_offset` on, copied to where `to` lies from `to_offset` on.
Source copy_part(const plan::KernelQuery& query, size_t input, TensorSpec from, int64_t from_offset, TensorSpec to,
                 int64_t to_offset) {
  const auto size = static_cast<int64_t>(dtype_size(to.dtype));
  plan::KernelQuery part = query;
  part.op = "copy";
  part.inputs = {std::move(from)};
  part.outputs = {std::move(to)};
  Source source = copy_source(part);
  source.operands = {{Operand::From::kInput, input, from_offset * size}, {Operand::From::kOutput, 0, to_offset * size}};
  return source;
}

Generated concat(const plan::KernelQuery& query) {
  const TensorSpec& out = query.outputs[0];
  const int dim = normalize_axis(get_attr<int64_t>(query.attrs, "dim"), out.shape.rank(), "concat");
  Generated generated;
  int64_t at = 0;
  for (size_t k = 0; k < query.inputs.size(); ++k) {
    const TensorSpec& in = query.inputs[k];
    generated.stages.push_back(copy_part(query, k, in, 0, {out.dtype, in.shape, out.strides}, at * out.strides[dim]));
    at += in.shape[dim];
  }
  return generated;
}

Generated flip(const plan::KernelQuery& query) {
  TensorSpec in = query.inputs[0];
  int64_t at = 0;
  for (int64_t d : get_attr<Ints>(query.attrs, "dims")) {
    const int axis = normalize_axis(d, in.shape.rank(), "flip");
    if (in.shape.rank() == 0 || in.shape[axis] == 0 || in.strides[axis] < 0) continue;
    at += (in.shape[axis] - 1) * in.strides[axis];
    in.strides[axis] = -in.strides[axis];
  }
  return {{copy_part(query, 0, in, at, query.outputs[0], 0)}};
}

Source filled(const plan::KernelQuery& query, double value) {
  const TensorSpec& out = query.outputs[0];
  Writer writer(query);
  writer.compute(out.dtype);
  writer.add(index_function("to", out.shape, out.strides));
  const std::string text = is_floating(out.dtype) || out.dtype == DType::kBool
                               ? number_text(value)
                               : fmt::format("{}LL", static_cast<int64_t>(value));
  return writer.each(
      "fill", numel(out.shape),
      fmt::format("    store(out0 + to(i), (C)({}{}));\n", text, out.dtype == DType::kBool ? " != 0" : ""));
}

Generated pad(const plan::KernelQuery& query) {
  const TensorSpec &in = query.inputs[0], &out = query.outputs[0];
  const Ints &low = get_attr<Ints>(query.attrs, "low"), &interior = get_attr<Ints>(query.attrs, "interior");
  TensorSpec to{out.dtype, in.shape, out.strides};
  int64_t at = 0;
  for (int i = 0; i < out.shape.rank(); ++i) {
    at += low[i] * out.strides[i];
    if (!interior.empty()) to.strides[i] *= interior[i] + 1;
  }
  Generated generated;
  if (in.shape != out.shape) generated.stages.push_back(filled(query, get_attr<double>(query.attrs, "value")));
  generated.stages.push_back(copy_part(query, 0, in, 0, to, at));
  return generated;
}

Generated full(const plan::KernelQuery& query) { return {{filled(query, get_attr<double>(query.attrs, "value"))}}; }

Generated iota(const plan::KernelQuery& query) {
  const TensorSpec& out = query.outputs[0];
  Writer writer(query);
  writer.compute(out.dtype);
  return {{writer.each("", numel(out.shape),
                       fmt::format("    const double v = {} + (double)i * {};\n    store(out0 + i * {}, (C)v);\n",
                                   number_text(get_attr<double>(query.attrs, "start")),
                                   number_text(get_attr<double>(query.attrs, "step")), out.strides[0]))}};
}

}  // namespace

void add_movement_kernels(KernelTable& table) {
  add_generated(table, "concat", concat);
  add_generated(table, "flip", flip);
  add_generated(table, "pad", pad);
}

void add_creation_kernels(KernelTable& table) {
  add_generated(table, "full", full);
  add_generated(table, "iota", iota);
}

}  // namespace sluice::cuda
