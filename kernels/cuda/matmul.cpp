// matmul and linear, of any dtype and strides, by generated tiles.
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

struct Matrix {
  int64_t row_stride = 0, column_stride = 0;
};

// The last two dims, exchanged when transposed.
Matrix matrix_of(const TensorSpec& spec, bool transposed) {
  const int r = spec.shape.rank();
  Matrix m{spec.strides[r - 2], spec.strides[r - 1]};
  if (transposed) std::swap(m.row_stride, m.column_stride);
  return m;
}

// Where the matrices of batch `g` begin, as a function.
std::string batches(const char* name, const TensorSpec& operand, const TensorSpec& z) {
  const auto leading = [](const TensorSpec& s) {
    TensorSpec lead{s.dtype, {}, {}};
    for (int i = 0; i + 2 < s.shape.rank(); ++i) {
      lead.shape.push_back(s.shape[i]);
      lead.strides.push_back(s.strides[i]);
    }
    return lead;
  };
  const Shape shape = leading(z).shape;
  return index_function(name, shape, cpu::broadcast_strides(leading(operand), shape));
}

std::string element(const char* input, const char* batch, Matrix m, const char* row, const char* column) {
  return fmt::format("(C)load({}[{} + {} * {} + {} * {}])", input, batch, row, m.row_stride, column, m.column_stride);
}

Generated matmul(const plan::KernelQuery& query) {
  const TensorSpec &a = query.inputs[0], &b = query.inputs[1], &z = query.outputs[0];
  const bool transpose_a = get_attr<bool>(query.attrs, "transpose_a");
  const Matrix am = matrix_of(a, transpose_a), bm = matrix_of(b, get_attr<bool>(query.attrs, "transpose_b")),
               zm = matrix_of(z, false);
  const int r = z.shape.rank();
  Writer writer(query);
  writer.compute(z.dtype);
  writer.add(batches("a_batch", a, z) + batches("b_batch", b, z) + batches("z_batch", z, z));
  Product p;
  p.m = z.shape[r - 2];
  p.n = z.shape[r - 1];
  p.k = a.shape[a.shape.rank() - (transpose_a ? 2 : 1)];
  for (int i = 0; i + 2 < r; ++i) p.batch *= z.shape[i];
  p.a_by_row = am.row_stride != 1;
  p.b_by_row = bm.column_stride == 1;
  p.a = element("in0", "a_batch(g)", am, "m", "k");
  p.b = element("in1", "b_batch(g)", bm, "k", "n");
  p.put = fmt::format("store(out0 + z_batch(g) + m * {} + n * {}, z);\n", zm.row_stride, zm.column_stride);
  p.size = compute_size(z.dtype);
  Generated generated;
  multiply(writer, p, generated);
  return generated;
}

Generated linear(const plan::KernelQuery& query) {
  const TensorSpec &x = query.inputs[0], &w = query.inputs[1];
  const auto& activation = get_attr<std::string>(query.attrs, "activation");
  const bool bias = query.inputs.size() > 2 && query.inputs[2].shape.rank() > 0;
  Writer writer(query, 3);
  writer.compute(x.dtype);
  if (activation != "none") {
    const Expression* e = find_expression(activation == "gelu_tanh" ? "gelu:tanh" : activation);
    writer.add(fmt::format("{}typedef C T;\n__device__ inline C activated(C a) {{ return {}; }}\n",
                           kExpressionFunctions, e->floating));
  }
  const Matrix wm = matrix_of(w, true);
  Product p;
  p.k = w.shape[1];
  p.n = w.shape[0];
  p.m = 1;
  for (int i = 0; i + 1 < x.shape.rank(); ++i) p.m *= x.shape[i];
  p.a_by_row = true;
  p.b_by_row = wm.column_stride == 1;
  p.a = element("in0", "0", {p.k, 1}, "m", "k");
  p.b = element("in1", "0", wm, "k", "n");
  p.put = fmt::format("store(out0 + m * {} + n, {}(z{}));\n", p.n, activation == "none" ? "" : "activated",
                      bias ? " + (C)load(in2[n])" : "");
  p.size = compute_size(x.dtype);
  Generated generated;
  multiply(writer, p, generated);
  return generated;
}

}  // namespace

void add_matmul_kernels(KernelTable& table) {
  add_generated(table, "matmul", matmul);
  add_generated(table, "linear", linear);
}

}  // namespace sluice::cuda
