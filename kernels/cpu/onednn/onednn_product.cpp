#include "kernels/cpu/onednn/onednn_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "kernels/cpu/onednn/library_defects.h"
#include "kernels/cpu/onednn/packing.h"
#include "kernels/cpu/onednn/relu_in_place.h"
#include "kernels/cpu/onednn/row_product.h"
#include "kernels/cpu/strides/strided.h"

namespace sluice::cpu {

namespace {

// The sizes of oneDNN's kernels for AVX2: the rows that they take at a time, those that rows left over are multiplied
// as, and the columns that a thread has at least before threads share out rows.
constexpr int64_t kRowsAtATime = 6, kRowsLeftOver = 4, kColumnsOfAThread = 64;

// Strides that oneDNN accepts also for dims of size 1.
onednn::Desc matrix_desc(TensorSpec spec) {
  const int r = spec.shape.rank();
  const bool by_rows = spec.strides[r - 1] == 1 && (spec.strides[r - 2] >= spec.shape[r - 1] || spec.shape[r - 2] == 1);
  const int fast = by_rows ? r - 1 : r - 2, slow = by_rows ? r - 2 : r - 1;
  if (spec.shape[slow] == 1) spec.strides[slow] = spec.shape[fast];
  int64_t extent = spec.strides[slow] * spec.shape[slow];
  for (int i = r - 3; i >= 0; --i) {
    if (spec.shape[i] == 1) spec.strides[i] = extent;
    extent = std::max(extent, spec.strides[i] * spec.shape[i]);
  }
  return onednn::desc(spec);
}

dnnl::post_ops activation_post_op(const std::string& name) {
  dnnl::post_ops ops;
  using A = dnnl::algorithm;
  if (name == "gelu") onednn::append_eltwise(ops, A::eltwise_gelu_erf);
  if (name == "gelu_tanh") onednn::append_eltwise(ops, A::eltwise_gelu_tanh);
  if (name == "tanh") onednn::append_eltwise(ops, A::eltwise_tanh);
  if (name == "sigmoid") onednn::append_eltwise(ops, A::eltwise_logistic);
  if (name == "silu") onednn::append_eltwise(ops, A::eltwise_swish, 1.f);
  return ops;
}

bool has_avx512() {
  static const bool has = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
  return has;
}

bool is_transposed(const TensorSpec& matrix) {
  return matrix.shape[0] > 1 && matrix.shape[1] > 1 && matrix.strides[0] < matrix.strides[1];
}

// Whether the bits of a row would depend on the number of rows.
bool rounds_by_rows(const Product& p) {
  return !has_avx512() && p.c.dtype == DType::kFloat32 && p.c.shape.rank() == 2 && p.a.strides[1] == 1;
}

// True if each element has a place of its own, and all of a dim lies within one step of the next wider dim.
bool lies_apart(const TensorSpec& spec) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (int i = 0; i < spec.shape.rank(); ++i)
    if (spec.shape[i] > 1) dims.emplace_back(spec.strides[i], spec.shape[i]);
  std::sort(dims.begin(), dims.end());
  int64_t extent = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < extent) return false;
    extent = stride * size;
  }
  return true;
}

constexpr int64_t kProbedColumns = 48, kMostProbedDepth = 1 << 15;

// The chunks of RowProduct in which oneDNN sums up products of `depth` elements, as it shows on numbers that are drawn;
// 0 where it sums up otherwise. Its kernels choose them by the depth, not by rows, columns or threads.
int64_t probed_chunk(int64_t depth) {
  constexpr int64_t kRows = 2;  // of one, this would be asked for again
  std::vector<float> a(static_cast<size_t>(kRows * depth)), b(static_cast<size_t>(depth * kProbedColumns));
  uint32_t state = 1;
  const auto draw = [&] { return static_cast<float>((state = state * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1; };
  std::generate(a.begin(), a.begin() + depth, draw);
  std::generate(b.begin(), b.end(), draw);
  Product product;
  product.a = TensorSpec::contiguous({DType::kFloat32, {kRows, depth}});
  product.b = TensorSpec::contiguous({DType::kFloat32, {depth, kProbedColumns}});
  product.c = TensorSpec::contiguous({DType::kFloat32, {kRows, kProbedColumns}});
  WorkspaceLayout layout;
  const OnednnProduct library("matmul", product, layout);
  constexpr size_t kAlignment = 64;
  size_t space = layout.bytes() + kAlignment;
  std::vector<std::byte> memory(space);
  void* workspace = memory.data();
  std::align(kAlignment, layout.bytes(), workspace, space);
  std::vector<float> expected(kRows * kProbedColumns), got(kProbedColumns);
  library.run(a.data(), b.data(), nullptr, nullptr, expected.data(), workspace);
  int64_t found = 0;
  for (const int64_t chunk : {depth, int64_t{256}, int64_t{384}, int64_t{512}, int64_t{768}, int64_t{1024},
                              int64_t{1536}, int64_t{2048}, int64_t{3072}, int64_t{4096}}) {
    if (chunk > depth || (chunk == depth && found == depth)) continue;
    multiply_row({a.data(), b.data(), kProbedColumns, 1, depth, chunk, nullptr, nullptr, got.data()}, 0,
                 kProbedColumns);
    if (std::memcmp(got.data(), expected.data(), sizeof(float) * kProbedColumns) != 0) continue;
    if (found != 0) return 0;  // the numbers do not tell them apart
    found = chunk;
  }
  return found;
}

int64_t chunk_of_sums(int64_t depth) {
  if (depth > kMostProbedDepth) return 0;  // the numbers to show it on would take too much memory
  static Mutex mutex;
  static std::map<int64_t, int64_t> known;
  {
    const MutexLock lock(mutex);
    if (const auto at = known.find(depth); at != known.end()) return at->second;
  }
  const int64_t chunk = probed_chunk(depth);
  const MutexLock lock(mutex);
  return known.emplace(depth, chunk).first->second;
}

bool is_row(const Product& p) {
  return p.c.dtype == DType::kFloat32 && p.c.shape.rank() == 2 && p.rows() == 1 && p.inner() > 0 &&
         (p.inner() == 1 || p.a.strides[1] == 1) && (p.b.strides[0] == 1 || p.b.strides[1] == 1) &&
         (p.activation == "none" || p.activation == "relu");
}

}  // namespace

bool onednn_reads(const TensorSpec& spec) {
  if (needs(Instead::kDense, spec) || !lies_apart(spec)) return false;
  const int r = spec.shape.rank();
  const int64_t rows = spec.shape[r - 2], cols = spec.shape[r - 1], rs = spec.strides[r - 2], cs = spec.strides[r - 1];
  return (cs == 1 && (rs >= cols || rows == 1)) || (rs == 1 && (cs >= rows || cols == 1));
}

OnednnProduct::OnednnProduct(const char* op, const Product& product, WorkspaceLayout& workspace) : product_(product) {
  const int64_t rows = product.rows();
  if (is_row(product)) chunk_ = chunk_of_sums(product.inner());
  if (chunk_ > 0) return;
  if (!rounds_by_rows(product)) {
    add_block(op, {.rows = rows}, product.threads, workspace);
    return;
  }
  const int64_t sixes = rows / kRowsAtATime, left = rows % kRowsAtATime;
  const int64_t missing = left == 0 ? 0 : std::max<int64_t>(kRowsLeftOver - left, 0);
  const bool narrow = product.cols() < kColumnsOfAThread * product.threads;
  if (narrow) teams_ = static_cast<int>(std::clamp<int64_t>(sixes, 1, product.threads));
  const int threads = narrow ? 1 : product.threads;
  if (teams_ == 1 && missing > 0 && rows * (product.inner() + product.cols()) <= product.inner() * product.cols()) {
    // To copy all costs less than to read b twice.
    add_block(op, {.rows = rows, .padding = missing}, threads, workspace);
    return;
  }
  const int64_t in_place = missing == 0 ? rows : rows - left;
  const int64_t share = std::max<int64_t>((sixes + teams_ - 1) / teams_, 1) * kRowsAtATime;
  for (int64_t first = 0, n = 0; first < in_place; first += n) {
    n = in_place - first < share + kRowsAtATime ? in_place - first : share;
    add_block(op, {.first = first, .rows = n}, threads, workspace);
  }
  if (missing > 0) add_block(op, {.first = in_place, .rows = left, .padding = missing}, threads, workspace);
}

void OnednnProduct::add_block(const char* op, Block block, int threads, WorkspaceLayout& workspace) {
  const Product& p = product_;
  const int r = p.c.shape.rank();
  TensorSpec a = p.a, c = p.c;
  a.shape[r - 2] = c.shape[r - 2] = block.rows + block.padding;
  if (block.padding > 0) {
    a.strides[0] = p.inner();
    block.copy_of_a = workspace.add(a.extent_bytes());
    block.copy_of_c = workspace.add(c.extent_bytes());
    if (p.residual) block.copy_of_residual = workspace.add(c.extent_bytes());
  }
  onednn::ThreadScope scope(threads);
  const onednn::Desc ad = matrix_desc(a), bd = matrix_desc(p.b), cd = matrix_desc(c);
  onednn::Desc bias;
  if (p.bias) {
    Shape shape = Shape::filled(r, 1);
    shape[r - 1] = p.cols();
    bias = onednn::desc(p.c.dtype, shape, contiguous_strides(shape));
  }
  dnnl::post_ops post_ops = activation_post_op(p.activation);
  const int residual_arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(post_ops.len()) | DNNL_ARG_SRC_1;
  if (p.residual) post_ops.append_binary(dnnl::algorithm::binary_add, cd);
  const auto describe = [&](const onednn::Desc& b) {
    return onednn::translate(op, [&] { return onednn::matmul_pd(ad, b, p.bias ? &bias : nullptr, cd, post_ops); });
  };
  auto pd = describe(bd);
  if (p.packed_b >= 0 && has_avx512()) {
    // The same implementation adds up in the same order, packed or not.
    const auto packed = describe(onednn::any_desc(p.b.dtype, p.b.shape));
    if (std::string_view(packed.impl_info_str()) == pd.impl_info_str())
      packing_ = cpu::packing(p.packed_b, bd, packed.weights_desc(), threads);
    if (packing_) {
      // The words are of b's axes, which are those of the variable or exchanged.
      if (is_transposed(p.b)) packing_->format = "transposed " + packing_->format;
      pd = packed;
    }
  }
  std::vector<onednn::Primitive::Arg> operands = {
      {DNNL_ARG_SRC, ad}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, cd}};
  if (p.bias) operands.push_back({DNNL_ARG_BIAS, bias});
  if (p.residual) operands.push_back({residual_arg, cd});
  block.primitive = std::make_unique<onednn::Primitive>(dnnl::matmul(pd), operands, pd.scratchpad_desc(), threads);
  block.scratchpad = workspace.add(block.primitive->scratchpad_bytes());
  blocks_.push_back(std::move(block));
}

void OnednnProduct::run_block(const Block& block, const void* a, const void* b, const void* bias, const void* residual,
                              void* c, void* workspace) const {
  const int r = product_.c.shape.rank();
  const auto size = static_cast<int64_t>(dtype_size(product_.c.dtype));
  const int64_t stride = product_.a.strides[r - 2] * size, row_of_a = product_.inner() * size,
                row_of_c = product_.cols() * size;
  const std::byte* x = static_cast<const std::byte*>(a) + block.first * stride;
  std::byte* const result = static_cast<std::byte*>(c) + block.first * row_of_c;
  std::byte* y = result;
  const std::byte* added =
      product_.residual ? static_cast<const std::byte*>(residual) + block.first * row_of_c : nullptr;
  if (block.padding > 0) {
    std::byte* const copy = at_offset(workspace, block.copy_of_a);
    for (int64_t i = 0; i < block.rows; ++i)
      std::memcpy(copy + i * row_of_a, x + i * stride, static_cast<size_t>(row_of_a));
    std::memset(copy + block.rows * row_of_a, 0, static_cast<size_t>(block.padding * row_of_a));
    x = copy;
    y = at_offset(workspace, block.copy_of_c);
    if (added != nullptr)
      added = static_cast<std::byte*>(
          std::memcpy(at_offset(workspace, block.copy_of_residual), added, static_cast<size_t>(block.rows * row_of_c)));
  }
  void* const scratchpad = workspace == nullptr ? nullptr : at_offset(workspace, block.scratchpad);
  std::array<const void*, 6> operands = {x, b, y};
  size_t count = 3;
  if (product_.bias) operands[count++] = bias;
  if (product_.residual) operands[count++] = added;
  operands[count++] = scratchpad;
  block.primitive->run(std::span(operands).first(count));
  if (block.padding > 0) std::memcpy(result, y, static_cast<size_t>(block.rows * row_of_c));
}

void OnednnProduct::run_row(const void* a, const void* b, const void* bias, const void* residual, void* c) const {
  constexpr int64_t kColumnsAtOnce = 64;
  const RowProduct row{static_cast<const float*>(a),
                       static_cast<const float*>(b),
                       product_.b.strides[0],
                       product_.b.strides[1],
                       product_.inner(),
                       chunk_,
                       product_.bias ? static_cast<const float*>(bias) : nullptr,
                       product_.residual ? static_cast<const float*>(residual) : nullptr,
                       static_cast<float*>(c)};
  parallel_ranges(product_.threads, product_.cols(), kColumnsAtOnce,
                  [&](int64_t begin, int64_t end) { multiply_row(row, begin, end); });
}

void OnednnProduct::run(const void* a, const void* b, const void* bias, const void* residual, void* c,
                        void* workspace) const {
  if (chunk_ > 0) {
    run_row(a, b, bias, residual, c);
  } else {
    // Within a region, even of one thread, oneDNN's would start its threads anew each time.
    parallel_ranges(teams_, static_cast<int64_t>(blocks_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        run_block(blocks_[static_cast<size_t>(i)], a, b, bias, residual, c, workspace);
    });
  }
  if (product_.activation == "relu") relu_in_place(product_.c.dtype, c, numel(product_.c.shape), product_.threads);
}

}  // namespace sluice::cpu
