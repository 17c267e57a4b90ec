// matmul and linear of any dtype and strides by generated tiles, where cuBLASLt does not take them.
#include "kernels/cuda/product/matmul.h"

#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/product/cublaslt_matmul.h"
#include "plan/query.h"

namespace sluice::cuda {
namespace {

Shape batch_of(const TensorSpec& spec) { return Shape(std::span(spec.shape.begin(), spec.shape.end() - 2)); }

// The last two dims, exchanged when transposed.
MatmulProblem::Matrix matrix_of(const TensorSpec& spec, bool transposed, const Shape& batch) {
  const int r = spec.shape.rank();
  TensorSpec leading{spec.dtype, batch_of(spec), {}};
  for (int i = 0; i + 2 < r; ++i) leading.strides.push_back(spec.strides[i]);
  MatmulProblem::Matrix m{spec.strides[r - 2], spec.strides[r - 1], cpu::broadcast_strides(leading, batch)};
  if (transposed) std::swap(m.row_stride, m.column_stride);
  return m;
}

std::string element(const char* input, const char* name, const MatmulProblem::Matrix& m, const char* row,
                    const char* column) {
  return fmt::format("(C)load({}[{}_batch(g) + {} * {} + {} * {}])", input, name, row, m.row_stride, column,
                     m.column_stride);
}

Generated generate(const plan::KernelQuery& query) {
  const MatmulProblem problem = matmul_problem(query);
  const auto& [a, b, z] = std::tie(problem.a, problem.b, problem.z);
  Writer writer(query, query.op == "linear" ? 3 : 0);
  writer.compute(problem.dtype);
  if (problem.activation != "none") {
    const bool tanh = problem.activation == "gelu_tanh";
    const ScalarOp* op = tanh ? find_scalar_op("gelu", "tanh") : find_scalar_op(problem.activation);
    writer.add(fmt::format("{}typedef C T;\n__device__ inline C activated(C a) {{ return {}; }}\n",
                           functions_for(op->floating), op->floating));
  }
  for (const auto& [name, matrix] : {std::pair{"a_batch", &a}, {"b_batch", &b}, {"z_batch", &z}})
    writer.add(index_function(name, problem.batch, matrix->batch_strides));
  Product p;
  p.batch = numel(problem.batch);
  p.m = problem.m;
  p.n = problem.n;
  p.k = problem.k;
  p.a_by_row = a.row_stride != 1;
  p.b_by_row = b.column_stride == 1;
  p.a = element("in0", "a", a, "m", "k");
  p.b = element("in1", "b", b, "k", "n");
  p.put = fmt::format("store(out0 + z_batch(g) + m * {} + n * {}, {}(z{}));\n", z.row_stride, z.column_stride,
                      problem.activation == "none" ? "" : "activated", problem.bias ? " + (C)load(in2[n])" : "");
  p.size = compute_size(problem.dtype);
  Generated generated;
  multiply(writer, p, generated);
  return generated;
}

// The usual layout; but if cuBLASLt cannot read an operand as it lies, the fewest operands are copied with which it
// can: a copy costs less than a product without the library.
plan::LayoutPreference suited(const plan::KernelQuery& query, const plan::LayoutPreference& usual) {
  for (const unsigned copied : {0u, 1u, 2u, 3u}) {
    plan::KernelQuery tried = query;
    plan::LayoutPreference preference = usual;
    for (size_t i = 0; i < 2; ++i) {
      if ((copied >> i & 1) == 0) continue;
      tried.inputs[i] = TensorSpec::contiguous({query.inputs[i].dtype, query.inputs[i].shape});
      preference.inputs[i] = plan::Layout::kContiguous;
    }
    if (cublaslt_problem(matmul_problem(tried))) return preference;
  }
  return usual;
}

}  // namespace

MatmulProblem matmul_problem(const plan::KernelQuery& query) {
  const TensorSpec& z = query.outputs[0];
  MatmulProblem p;
  p.dtype = z.dtype;
  p.precision = plan::beside(query.attrs, plan::kPrecision, p.precision);
  SLUICE_CHECK(p.precision == "highest" || p.precision == "high" || p.precision == "medium",
               "{}: unknown precision: \"{}\"; it must be one of highest, high, medium", query.op, p.precision);
  if (query.op == "linear") {
    const TensorSpec &x = query.inputs[0], &w = query.inputs[1];
    p.activation = get_attr<std::string>(query.attrs, "activation");
    p.bias = query.inputs.size() > 2 && query.inputs[2].shape.rank() > 0;
    p.m = 1;
    for (int i = 0; i + 1 < x.shape.rank(); ++i) p.m *= x.shape[i];
    p.n = w.shape[0];
    p.k = w.shape[1];
    p.a = {p.k, 1, {}};
    p.b = matrix_of(w, true, {});
    p.z = {p.n, 1, {}};
    return p;
  }
  const bool transpose_a = get_attr<bool>(query.attrs, "transpose_a");
  const TensorSpec& a = query.inputs[0];
  const int r = z.shape.rank();
  p.batch = batch_of(z);
  p.m = z.shape[r - 2];
  p.n = z.shape[r - 1];
  p.k = a.shape[a.shape.rank() - (transpose_a ? 2 : 1)];
  p.a = matrix_of(a, transpose_a, p.batch);
  p.b = matrix_of(query.inputs[1], get_attr<bool>(query.attrs, "transpose_b"), p.batch);
  p.z = matrix_of(z, false, p.batch);
  return p;
}

void add_matmul_kernels(KernelTable& table) {
  const LibraryKernels library{cublaslt() == nullptr ? "" : "cuBLASLt", cublaslt_matmul, cublaslt_matmul_names};
  for (const char* op : {"matmul", "linear"}) {
    add_generated(table, op, generate, library);
    if (cublaslt() == nullptr) continue;
    KernelDef def = table.get(op, DeviceKind::kCuda);
    def.layouts = [usual = def.layouts](const plan::KernelQuery& query) { return suited(query, usual(query)); };
    def.padded_sizes = cublaslt_sizes;
    table.replace(DeviceKind::kCuda, std::move(def));
  }
}

}  // namespace sluice::cuda
