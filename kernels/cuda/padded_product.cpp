#include "kernels/cuda/padded_product.h"

#include <algorithm>

#include "kernels/cuda/matmul.h"
#include "plan/query.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kRowAlignment = 16;      // bytes that an algorithm for tensor cores loads at once
constexpr int64_t kPaddedAlignment = 128;  // bytes of a row that is copied
constexpr int64_t kRowsAlignment = 128;    // rows of a part
constexpr uint64_t kWorkspaceAlignment = 256;

bool is_bad(const TensorSpec& matrix) {
  return matrix.strides[1] == 1 && matrix.shape[1] > 1 &&
         matrix.strides[0] * static_cast<int64_t>(dtype_size(matrix.dtype)) % kRowAlignment != 0;
}

TensorSpec padded(const TensorSpec& matrix) {
  const int64_t in_row = kPaddedAlignment / static_cast<int64_t>(dtype_size(matrix.dtype));
  const int64_t row = (matrix.shape[1] + in_row - 1) / in_row * in_row;
  return {matrix.dtype, matrix.shape, {row, 1}};
}

// As a matrix, where its dims but the last follow each other.
TensorSpec flat(const TensorSpec& spec) {
  const int r = spec.shape.rank();
  return {spec.dtype, {numel(spec.shape) / spec.shape[r - 1], spec.shape[r - 1]}, {spec.strides[r - 2], 1}};
}

uint64_t copied_bytes(const TensorSpec& matrix) { return is_bad(matrix) ? padded(matrix).extent_bytes() : 0; }

// z = x y in parts of z's rows. x and z are matrices; x may be transposed.
struct Parts {
  TensorSpec x, z;
  bool transposed = false;
  int64_t rows = 0;  // of a part, but for the last

  TensorSpec x_of(int64_t part) const {
    TensorSpec spec = x;
    spec.shape[transposed ? 1 : 0] = part;
    return spec;
  }
  TensorSpec z_of(int64_t part) const { return {z.dtype, {part, z.shape[1]}, z.strides}; }
  int64_t x_offset(int64_t row) const {
    return row * (transposed ? 1 : x.strides[0]) * static_cast<int64_t>(dtype_size(x.dtype));
  }
  int64_t z_offset(int64_t row) const { return row * z.strides[0] * static_cast<int64_t>(dtype_size(z.dtype)); }

  // The product of a part, with rows that are padded where they are bad.
  plan::KernelQuery query_of(const plan::KernelQuery& whole, int64_t part) const {
    plan::KernelQuery query = whole;
    const TensorSpec x_part = x_of(part), z_part = z_of(part);
    query.inputs[0] = is_bad(x_part) ? padded(x_part) : x_part;
    query.outputs[0] = is_bad(z_part) ? padded(z_part) : z_part;
    return query;
  }
};

std::optional<Parts> parts_of(const plan::KernelQuery& query, const PaddingRules& rules) {
  const TensorSpec &x = query.inputs[0], &y = query.inputs[1], &z = query.outputs[0];
  const bool linear = query.op == "linear";
  if (x.shape.rank() < 2 || y.shape.rank() != 2 || (!linear && x.shape.rank() != 2)) return std::nullopt;
  if (x.shape.rank() > 2 && !(is_contiguous(x.shape, x.strides) && is_contiguous(z.shape, z.strides)))
    return std::nullopt;
  const MatmulProblem problem = matmul_problem(query);
  const bool tensor_cores = problem.dtype == DType::kFloat16 || problem.dtype == DType::kBFloat16 ||
                            (problem.dtype == DType::kFloat32 && problem.precision != "highest");
  if (!tensor_cores || is_bad(y)) return std::nullopt;
  Parts parts{flat(x), flat(z), !linear && get_attr<bool>(query.attrs, "transpose_a")};
  const uint64_t bytes = copied_bytes(parts.x) + copied_bytes(parts.z);
  const double flops =
      2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) * static_cast<double>(problem.k);
  if (bytes == 0 || flops < rules.flops || flops < rules.flops_per_byte * static_cast<double>(bytes))
    return std::nullopt;
  const uint64_t most = rules.copied_bytes;
  const int64_t count = static_cast<int64_t>((bytes + most - 1) / std::max<uint64_t>(most, 1));
  parts.rows = (problem.m + count - 1) / std::max<int64_t>(count, 1);
  if (parts.rows < problem.m) parts.rows = (parts.rows + kRowsAlignment - 1) / kRowsAlignment * kRowsAlignment;
  if (parts.rows < kRowsAlignment || copied_bytes(parts.x_of(parts.rows)) > 2 * most) return std::nullopt;
  return parts;
}

std::unique_ptr<GeneratedKernel> copy(const DeviceId& device, const TensorSpec& from, const TensorSpec& to) {
  const plan::KernelQuery query{.op = "copy", .attrs = {}, .inputs = {from}, .outputs = {to}, .device = device};
  return std::make_unique<GeneratedKernel>(query, Generated{{copy_source(query)}});
}

class PaddedProduct final : public PreparedKernel {
 public:
  // REQUIRES: `whole` is cut into `parts`. products: of a part, and of the last where that is another.
  PaddedProduct(const plan::KernelQuery& whole, const Parts& parts,
                std::vector<std::unique_ptr<PreparedKernel>> products)
      : parts_(parts), inputs_(whole.inputs.size()) {
    uint64_t x_bytes = 0, z_bytes = 0, product_bytes = 0;
    int64_t rows = parts.rows;
    for (std::unique_ptr<PreparedKernel>& product : products) {
      const TensorSpec x = parts.x_of(rows), z = parts.z_of(rows);
      Kernels& k = kernels_.emplace_back();
      if (is_bad(x)) k.in = copy(whole.device, x, padded(x));
      if (is_bad(z)) k.out = copy(whole.device, padded(z), z);
      x_bytes = std::max(x_bytes, copied_bytes(x));
      z_bytes = std::max(z_bytes, copied_bytes(z));
      product_bytes = std::max(product_bytes, product->workspace_bytes());
      k.product = std::move(product);
      rows = parts.z.shape[0] % parts.rows;
    }
    x_at_ = align_up(product_bytes, kWorkspaceAlignment);
    z_at_ = x_at_ + align_up(x_bytes, kWorkspaceAlignment);
    workspace_bytes_ = z_at_ + z_bytes;
    repeatable_ = true;
  }
  const char* library() const override { return kernels_[0].product->library(); }

  void run(const KernelArgs& args) const override {
    for (int64_t row = 0; row < parts_.z.shape[0]; row += parts_.rows)
      run(args, kernels_[row + parts_.rows > parts_.z.shape[0] ? 1 : 0], row);
  }

 private:
  struct Kernels {
    std::unique_ptr<PreparedKernel> in, product, out;  // in, out: null where rows are good as they are
  };

  void run(const KernelArgs& args, const Kernels& k, int64_t row) const {
    auto* const workspace = static_cast<std::byte*>(args.workspace);
    const void* x = static_cast<const std::byte*>(args.inputs[0]) + parts_.x_offset(row);
    void* z = static_cast<std::byte*>(args.outputs[0]) + parts_.z_offset(row);
    KernelArgs of_part = args;
    if (k.in != nullptr) {
      void* copied = workspace + x_at_;
      of_part.inputs = &x;
      of_part.outputs = &copied;
      k.in->run(of_part);
      x = copied;
    }
    const void* const inputs[] = {x, args.inputs[1], inputs_ > 2 ? args.inputs[2] : nullptr};
    void* written = k.out == nullptr ? z : workspace + z_at_;
    of_part.inputs = inputs;
    of_part.outputs = &written;
    k.product->run(of_part);
    if (k.out == nullptr) return;
    const void* const from = written;
    of_part.inputs = &from;
    of_part.outputs = &z;
    k.out->run(of_part);
  }
  const Parts parts_;
  const size_t inputs_;
  std::vector<Kernels> kernels_;
  uint64_t x_at_ = 0, z_at_ = 0;
};

}  // namespace

std::optional<plan::KernelQuery> padded_part(const plan::KernelQuery& query, const PaddingRules& rules) {
  const std::optional<Parts> parts = parts_of(query, rules);
  return parts ? std::optional(parts->query_of(query, parts->rows)) : std::nullopt;
}

std::unique_ptr<PreparedKernel> padded_product(const plan::KernelQuery& query, const PaddingRules& rules) {
  const std::optional<Parts> parts = parts_of(query, rules);
  if (!parts) return nullptr;
  std::vector<std::unique_ptr<PreparedKernel>> products;
  for (const int64_t rows : {parts->rows, parts->z.shape[0] % parts->rows}) {
    if (rows == 0) continue;
    products.push_back(cublaslt_matmul(parts->query_of(query, rows)));
    if (products.back() == nullptr) return nullptr;
  }
  auto product = std::make_unique<PaddedProduct>(query, *parts, std::move(products));
  if (product->workspace_bytes() > plan::workspace_limit(query.attrs)) return nullptr;
  return product;
}

}  // namespace sluice::cuda
