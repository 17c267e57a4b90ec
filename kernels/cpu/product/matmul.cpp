// matmul, linear and fused_matmul: oneDNN in float32 and bfloat16, plain loops in the other dtypes.
#include <algorithm>

#include "kernels/copy.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/onednn/onednn_product.h"
#include "kernels/cpu/product/double_product.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
#include "plan/query.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;
using plan::Layout;

constexpr int kRight = 1, kLinearBias = 2, kAddend = 2, kBiasBehindIt = 3;  // operands

// An operand as matrices: the last two dims exchanged when transposed, batch dims padded with ones to `rank`.
TensorSpec as_matrices(const TensorSpec& spec, bool transposed, int rank) {
  TensorSpec m = spec;
  const int r = spec.shape.rank();
  if (transposed) {
    std::swap(m.shape[r - 1], m.shape[r - 2]);
    std::swap(m.strides[r - 1], m.strides[r - 2]);
  }
  while (m.shape.rank() < rank) {
    m.shape.insert(0, 1);
    m.strides.insert(0, 0);
  }
  return m;
}

// An operand that may have to be made contiguous in the workspace first.
struct Source {
  TensorSpec spec;  // as read by the product
  std::unique_ptr<PreparedKernel> copy;
  uint64_t offset = 0;

  const void* get(const void* given, void* workspace) const {
    if (!copy) return given;
    const void* in[] = {given};
    void* out[] = {at_offset(workspace, offset)};
    copy->run({.inputs = in, .outputs = out});
    return out[0];
  }
};
// The one who multiplies: oneDNN where it can, of operands that it can read, or the loops, which read all where they
// lie.
enum class By { kOneDnn, kLoops };

Source make_source(const TensorSpec& spec, bool transposed, int rank, WorkspaceLayout& workspace,
                   const PrepareContext& context, By by) {
  Source source{as_matrices(spec, transposed, rank), nullptr, 0};
  if (by == By::kLoops || onednn_reads(source.spec)) return source;
  const TensorSpec dense = TensorSpec::contiguous({spec.dtype, spec.shape});
  KernelQuery query{
      .op = "copy", .attrs = {}, .inputs = {spec}, .outputs = {dense}, .device = {}, .cores = context.threads};
  source.copy = copy_kernel().prepare(query, context);
  source.offset = workspace.add(dense.extent_bytes());
  source.spec = as_matrices(dense, transposed, rank);
  return source;
}

template <class C>
C activated(C z, const std::string& name) {
  if constexpr (std::is_floating_point_v<C>) {
    if (name == "relu") return z < 0 ? C(0) : z;
    if (name == "gelu") return z * C(0.5) * std::erfc(-z * C(0.70710678118654752440));
    if (name == "gelu_tanh")
      return C(0.5) * z * (1 + std::tanh(C(0.79788456080286535588) * (z + C(0.044715) * z * z * z)));
    if (name == "tanh") return std::tanh(z);
    if (name == "sigmoid") return 1 / (1 + std::exp(-z));
    if (name == "silu") return z / (1 + std::exp(-z));
  }
  return z;
}

// The offsets of the matrices of a batch.
struct Matrices {
  int64_t a = 0, b = 0;
};
Matrices matrices_at(const Product& p, int64_t batch) {
  Matrices at;
  for (int d = p.c.shape.rank() - 3; d >= 0; --d) {
    const int64_t i = batch % p.c.shape[d];
    batch /= p.c.shape[d];
    if (p.a.shape[d] > 1) at.a += i * p.a.strides[d];
    if (p.b.shape[d] > 1) at.b += i * p.b.strides[d];
  }
  return at;
}

// Finishes the products of columns [first, first + n) of a row.
template <class T>
void finish_row(const Product& p, Compute<T>* sums, int64_t first, int64_t n, const T* bias, const T* residual, T* c) {
  using C = Compute<T>;
  if (bias != nullptr) {
    for (int64_t j = 0; j < n; ++j) sums[j] += C(load(bias[first + j]));
  }
  if (p.activation != "none") {
    for (int64_t j = 0; j < n; ++j) sums[j] = activated(sums[j], p.activation);
  }
  if (residual != nullptr) {
    for (int64_t j = 0; j < n; ++j) sums[j] += C(load(residual[first + j]));
  }
  for (int64_t j = 0; j < n; ++j) store(c + first + j, sums[j]);
}

template <class T>
void multiply(const Product& p, const T* a, const T* b, const T* bias, const T* residual, T* c) {
  using C = Compute<T>;
  const int r = p.c.shape.rank();
  const int64_t rows = p.c.shape[r - 2], cols = p.c.shape[r - 1], inner = p.a.shape[r - 1];
  const int64_t all_rows = cols == 0 ? 0 : numel(p.c.shape) / cols;
  const int64_t ars = p.a.strides[r - 2], acs = p.a.strides[r - 1], brs = p.b.strides[r - 2], bcs = p.b.strides[r - 1];
  parallel_each(p.threads, all_rows, [&](int64_t row) {
    const Matrices at = matrices_at(p, row / rows);
    const T* from = a + at.a + row % rows * ars;
    constexpr int64_t kBlock = 64;
    for (int64_t j0 = 0; j0 < cols; j0 += kBlock) {
      const int64_t n = std::min(kBlock, cols - j0);
      C sums[kBlock] = {};
      for (int64_t k = 0; k < inner; ++k) {
        const C av = load(from[k * acs]);
        const T* bk = b + at.b + k * brs + j0 * bcs;
        if (bcs == 1) {
          for (int64_t j = 0; j < n; ++j) sums[j] += C(product(av, load(bk[j])));
        } else {
          for (int64_t j = 0; j < n; ++j) sums[j] += C(product(av, load(bk[j * bcs])));
        }
      }
      finish_row<T>(p, sums, j0, n, bias, residual ? residual + row * cols : nullptr, c + row * cols);
    }
  });
}

// The same in blocks of rows and columns.
template <>
void multiply(const Product& p, const double* a, const double* b, const double* bias, const double* residual,
              double* c) {
  const int r = p.c.shape.rank();
  const int64_t rows = p.c.shape[r - 2], cols = p.c.shape[r - 1];
  if (numel(p.c.shape) == 0) return;
  constexpr int64_t kRows = 48;
  const int64_t row_blocks = (rows + kRows - 1) / kRows, col_blocks = (cols + kProductLanes - 1) / kProductLanes;
  const int64_t batches = numel(p.c.shape) / (rows * cols);
  parallel_each(p.threads, batches * row_blocks * col_blocks, [&](int64_t block) {
    const int64_t batch = block / (row_blocks * col_blocks), first_row = block / col_blocks % row_blocks * kRows,
                  first = block % col_blocks * kProductLanes;
    const Matrices at = matrices_at(p, batch);
    const DoubleProduct part{.a = a + at.a + first_row * p.a.strides[r - 2],
                             .a_row = p.a.strides[r - 2],
                             .a_depth = p.a.strides[r - 1],
                             .b = b + at.b + first * p.b.strides[r - 1],
                             .b_depth = p.b.strides[r - 2],
                             .b_column = p.b.strides[r - 1],
                             .rows = std::min(kRows, rows - first_row),
                             .depth = p.a.shape[r - 1],
                             .columns = std::min(kProductLanes, cols - first)};
    alignas(64) double sums[kRows * kProductLanes];
    multiply_doubles(part, sums);
    for (int64_t i = 0; i < part.rows; ++i) {
      const int64_t row = (batch * rows + first_row + i) * cols;
      finish_row<double>(p, sums + i * kProductLanes, first, part.columns, bias, residual ? residual + row : nullptr,
                         c + row);
    }
  });
}

using MultiplyFn = void (*)(const Product&, const void*, const void*, const void*, const void*, void*);
template <class T>
void multiply_erased(const Product& p, const void* a, const void* b, const void* bias, const void* residual, void* c) {
  multiply(p, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(bias),
           static_cast<const T*>(residual), static_cast<T*>(c));
}
MultiplyFn multiply_for(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return multiply_erased<float>;
    case DType::kFloat64: return multiply_erased<double>;
    case DType::kBFloat16: return multiply_erased<BFloat16>;
    case DType::kFloat16: return multiply_erased<Float16>;
    case DType::kUInt8: return multiply_erased<uint8_t>;
    case DType::kInt8: return multiply_erased<int8_t>;
    case DType::kInt16: return multiply_erased<int16_t>;
    case DType::kInt32: return multiply_erased<int32_t>;
    case DType::kInt64: return multiply_erased<int64_t>;
    case DType::kComplex64: return multiply_erased<std::complex<float>>;
    case DType::kComplex128: return multiply_erased<std::complex<double>>;
    case DType::kBool: break;
  }
  fail(ErrorKind::kUnsupported, "matmul: no kernel for dtype {}; cast to a number", dtype_name(dtype));
}

// The product by oneDNN. It reads b packed where it may and that is faster.
class LibraryProduct final : public PreparedKernel {
 public:
  LibraryProduct(const char* op, Source a, Source b, const Product& p, int bias_at, WorkspaceLayout& workspace)
      : a_(std::move(a)),
        b_(std::move(b)),
        bias_at_(p.bias ? bias_at : kNone),
        residual_at_(p.residual ? kAddend : kNone),
        product_(op, p, workspace) {
    workspace_bytes_ = workspace.bytes();
    held_bytes_ = product_.held_bytes();
    if (product_.packing()) packings_.push_back(*product_.packing());
  }
  void run(const KernelArgs& args) const override {
    const auto input = [&](int at) { return at == kNone ? nullptr : args.inputs[at]; };
    product_.run(a_.get(args.inputs[0], args.workspace), b_.get(args.inputs[kRight], args.workspace), input(bias_at_),
                 input(residual_at_), args.outputs[0], args.workspace);
  }

 private:
  static constexpr int kNone = -1;
  Source a_, b_;
  int bias_at_, residual_at_;
  OnednnProduct product_;
};

// The input that is b, if the query lets others keep it packed.
int packed_right(const KernelQuery& q) {
  return std::find(q.packed.begin(), q.packed.end(), kRight) != q.packed.end() ? kRight : -1;
}

// c = act(a b + bias) + residual, after the operands have been made readable.
std::unique_ptr<PreparedKernel> prepare_product(const char* op, Source a, Source b, Product p,
                                                WorkspaceLayout workspace, const PrepareContext& context, By by) {
  const int r = p.c.shape.rank();
  const double flops = 2.0 * static_cast<double>(numel(p.c.shape)) * static_cast<double>(a.spec.shape[r - 1]);
  const int bias_at = p.residual ? kBiasBehindIt : kLinearBias;
  p.a = a.spec;
  p.b = b.spec;
  // oneDNN's choice of a kernel overflows for dims beyond 32 bits.
  const auto countable = [](const TensorSpec& spec) {
    return std::all_of(spec.shape.begin(), spec.shape.end(), [](int64_t n) { return n <= INT32_MAX; });
  };
  if (by == By::kLoops || !onednn::supports(p.c.dtype) || flops == 0 || !countable(p.a) || !countable(p.b)) {
    p.threads = threads_for(context, flops);
    return make_kernel(workspace.bytes(), [a = std::move(a), b = std::move(b), p, bias_at,
                                           f = multiply_for(p.c.dtype)](const KernelArgs& args) {
      f(p, a.get(args.inputs[0], args.workspace), b.get(args.inputs[1], args.workspace),
        p.bias ? args.inputs[bias_at] : nullptr, p.residual ? args.inputs[kAddend] : nullptr, args.outputs[0]);
    });
  }
  const uint64_t bytes = p.a.extent_bytes() + p.b.extent_bytes() + p.c.extent_bytes();
  p.threads = threads_for_product(context, flops, static_cast<double>(bytes));
  if (b.copy || p.b.shape.rank() != 2) p.packed_b = -1;
  return std::make_unique<LibraryProduct>(op, std::move(a), std::move(b), p, bias_at, workspace);
}

// oneDNN's, unless that takes a larger workspace than is allowed.
template <class Make>
std::unique_ptr<PreparedKernel> prepare_within_limit(const KernelQuery& q, Make make) {
  std::unique_ptr<PreparedKernel> kernel = make(By::kOneDnn);
  return kernel->workspace_bytes() <= plan::workspace_limit(q.attrs) ? std::move(kernel) : make(By::kLoops);
}

std::unique_ptr<PreparedKernel> make_matmul(const KernelQuery& q, const PrepareContext& context, By by) {
  WorkspaceLayout workspace;
  const int rank = q.outputs[0].shape.rank();
  Source a = make_source(q.inputs[0], get_attr<bool>(q.attrs, "transpose_a"), rank, workspace, context, by);
  Source b = make_source(q.inputs[1], get_attr<bool>(q.attrs, "transpose_b"), rank, workspace, context, by);
  Product p;
  p.c = q.outputs[0];
  p.packed_b = packed_right(q);
  return prepare_product("matmul", std::move(a), std::move(b), p, workspace, context, by);
}
std::unique_ptr<PreparedKernel> prepare_matmul(const KernelQuery& q, const PrepareContext& context) {
  return prepare_within_limit(q, [&](By by) { return make_matmul(q, context, by); });
}

std::unique_ptr<PreparedKernel> make_linear(const KernelQuery& q, const PrepareContext& context, By by) {
  WorkspaceLayout workspace;
  const int64_t out = q.inputs[1].shape[0], in = q.inputs[1].shape[1];
  int64_t rows = 1;
  for (int i = 0; i + 1 < q.inputs[0].shape.rank(); ++i) rows *= q.inputs[0].shape[i];
  auto matrix = [&](int64_t cols) { return TensorSpec::contiguous({q.inputs[0].dtype, {rows, cols}}); };
  Source a = make_source(matrix(in), false, 2, workspace, context, by);
  Source b = make_source(q.inputs[1], true, 2, workspace, context, by);
  Product p;
  p.c = matrix(out);
  p.bias = has_operand(q.inputs, kLinearBias);
  p.activation = get_attr<std::string>(q.attrs, "activation");
  p.packed_b = packed_right(q);
  return prepare_product("linear", std::move(a), std::move(b), p, workspace, context, by);
}
std::unique_ptr<PreparedKernel> prepare_linear(const KernelQuery& q, const PrepareContext& context) {
  return prepare_within_limit(q, [&](By by) { return make_linear(q, context, by); });
}

// Rows of all batches at once, where they are multiplied by one matrix.
bool is_one_product(const KernelQuery& q) {
  return q.inputs[1].shape.rank() == 2 && !get_attr<bool>(q.attrs, "transpose_a");
}
std::unique_ptr<PreparedKernel> make_fused_matmul(const KernelQuery& q, const PrepareContext& context, By by) {
  WorkspaceLayout workspace;
  Product p;
  p.bias = has_operand(q.inputs, kBiasBehindIt);
  p.residual = true;
  p.packed_b = packed_right(q);
  TensorSpec a = q.inputs[0];
  p.c = q.outputs[0];
  if (is_one_product(q) && a.shape.rank() > 2) {
    const auto matrix = [](const TensorSpec& spec) {
      const int64_t cols = spec.shape.back();
      return TensorSpec::contiguous({spec.dtype, {cols == 0 ? 0 : numel(spec.shape) / cols, cols}});
    };
    a = matrix(a);
    p.c = matrix(p.c);
  }
  const int rank = p.c.shape.rank();
  Source left = make_source(a, get_attr<bool>(q.attrs, "transpose_a"), rank, workspace, context, by);
  Source right = make_source(q.inputs[1], get_attr<bool>(q.attrs, "transpose_b"), rank, workspace, context, by);
  return prepare_product("fused_matmul", std::move(left), std::move(right), p, workspace, context, by);
}
std::unique_ptr<PreparedKernel> prepare_fused_matmul(const KernelQuery& q, const PrepareContext& context) {
  return prepare_within_limit(q, [&](By by) { return make_fused_matmul(q, context, by); });
}

plan::LayoutPreference matmul_layouts(const KernelQuery&) {
  return {{Layout::kAny, Layout::kAny}, {Layout::kContiguous}};
}
plan::LayoutPreference linear_layouts(const KernelQuery& q) {
  plan::LayoutPreference preference{std::vector<Layout>(q.inputs.size(), Layout::kContiguous), {Layout::kContiguous}};
  preference.inputs[1] = Layout::kAny;
  return preference;
}
plan::LayoutPreference fused_matmul_layouts(const KernelQuery& q) {
  plan::LayoutPreference preference{{Layout::kAny, Layout::kAny, Layout::kContiguous, Layout::kContiguous},
                                    {Layout::kContiguous}};
  if (is_one_product(q) && q.inputs[0].shape.rank() > 2) preference.inputs[0] = Layout::kContiguous;
  return preference;
}

}  // namespace

void add_matmul_kernels(KernelTable& table) {
  table.add(
      DeviceKind::kCpu,
      {.op = "matmul", .prepare = prepare_matmul, .layouts = matmul_layouts, .packs = {kRight}, .packs_if_kept = true});
  table.add(
      DeviceKind::kCpu,
      {.op = "linear", .prepare = prepare_linear, .layouts = linear_layouts, .packs = {kRight}, .packs_if_kept = true});
  table.add(DeviceKind::kCpu, {.op = "fused_matmul",
                               .prepare = prepare_fused_matmul,
                               .layouts = fused_matmul_layouts,
                               .packs = {kRight},
                               .packs_if_kept = true});
}

}  // namespace sluice::cpu
