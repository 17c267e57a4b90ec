// Which sizes of a product suit cuBLASLt. Its kernels for tensor cores load 16 bytes at once, so that rows of all three
// matrices must begin at multiples of that; for other rows it takes kernels of an older generation. Seen on an H100, in
// bfloat16, 8192 x 768 by 768 x 50257: 6.4 ms, and 0.94 ms with 50304 columns. It does not help if only the rows' pitch
// suits, and not their length: 6.4 ms.
#include "kernels/cuda/expressions.h"
#include "kernels/cuda/product/matmul.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kLoadBytes = 16;     // by which rows must be divisible
constexpr int64_t kRowBytes = 128;     // by which they are when they are padded: lines of the cache
constexpr double kFewestFlops = 1e10;  // a product that takes longer than launching what pads does
constexpr double kFlopsPerByte = 128;  // that it must compute for each byte that padding reads or writes, to gain by it

bool for_tensor_cores(const MatmulProblem& problem) {
  return problem.dtype == DType::kFloat16 || problem.dtype == DType::kBFloat16 ||
         (problem.dtype == DType::kFloat32 && problem.precision != "highest");
}

}  // namespace

Ints cublaslt_sizes(const plan::KernelQuery& query) {
  const MatmulProblem p = matmul_problem(query);
  if (!for_tensor_cores(p) || numel(p.batch) != 1) return {};
  const bool linear = query.op == "linear";
  const bool transpose_a = !linear && get_attr<bool>(query.attrs, "transpose_a"),
             transpose_b = linear || get_attr<bool>(query.attrs, "transpose_b");
  const auto bytes = static_cast<int64_t>(dtype_size(p.dtype));
  const auto padded = [&](int64_t row) {
    const int64_t length = row * bytes;
    return length % kLoadBytes == 0 ? row : (length + kRowBytes - 1) / kRowBytes * kRowBytes / bytes;
  };
  const bool k_is_row = !transpose_a || transpose_b;
  const int64_t m = transpose_a ? padded(p.m) : p.m, n = padded(p.n), k = k_is_row ? padded(p.k) : p.k;
  double moved = 0;  // elements; what is cut off at the end of rows may be copied by who reads the result
  if (m != p.m || k != p.k) moved += static_cast<double>(m) * static_cast<double>(k);
  if (n != p.n || k != p.k) moved += static_cast<double>(n) * static_cast<double>(k);
  if (n != p.n) moved += static_cast<double>(m) * static_cast<double>(n);
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const bool pays = flops >= kFewestFlops && flops >= kFlopsPerByte * 2 * static_cast<double>(bytes) * moved;
  return moved > 0 && pays ? Ints{m, n, k} : Ints{};
}

}  // namespace sluice::cuda
