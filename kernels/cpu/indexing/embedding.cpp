// embedding, its backward, and sums of its rows.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

using plan::KernelQuery;

struct Index {
  int64_t count = 0, rows = 0;
  bool narrow = false;
  int64_t at(const void* values, int64_t i) const {
    return narrow ? static_cast<const int32_t*>(values)[i] : static_cast<const int64_t*>(values)[i];
  }
  bool valid(int64_t row) const { return static_cast<uint64_t>(row) < static_cast<uint64_t>(rows); }
  [[noreturn]] void fail_at(const char* op, const void* values, int64_t i) const {
    fail(ErrorKind::kIndex, "{}: index is out of range: {} at position {}; it must be at least 0 and below {}", op,
         at(values, i), i, rows);
  }
};
Index make_index(const TensorSpec& spec, int64_t rows) {
  return {numel(spec.shape), rows, spec.dtype == DType::kInt32};
}

std::unique_ptr<PreparedKernel> prepare_embedding(const KernelQuery& q, const PrepareContext& context) {
  const Index index = make_index(q.inputs[1], q.inputs[0].shape[0]);
  const int64_t features = q.inputs[0].shape[1];
  const size_t row_bytes = static_cast<size_t>(features) * dtype_size(q.inputs[0].dtype);
  const int threads = threads_for(context, static_cast<double>(index.count * features));
  return make_kernel(0, [=](const KernelArgs& args) {
    const auto* table = static_cast<const std::byte*>(args.inputs[0]);
    auto* out = static_cast<std::byte*>(args.outputs[0]);
    const void* values = args.inputs[1];
    std::atomic<int64_t> bad{-1};
    parallel_each(threads, index.count, [&](int64_t i) {
      const int64_t row = index.at(values, i);
      if (index.valid(row))
        std::memcpy(out + static_cast<size_t>(i) * row_bytes, table + static_cast<size_t>(row) * row_bytes, row_bytes);
      else
        bad = i;
    });
    if (bad >= 0) index.fail_at("embedding", values, bad);
  });
}

// Each thread owns a range of features and adds rows in the order of the indices: the result does not depend on
// threads.
template <class T>
void add_rows(const Index& index, int64_t features, int64_t padding, int threads, const KernelArgs& args,
              Compute<T>* sums) {
  using C = Compute<T>;
  const T* grad = static_cast<const T*>(args.inputs[0]);
  constexpr int64_t kBlock = 64;
  const int64_t blocks = (features + kBlock - 1) / kBlock;
  parallel_each(threads, blocks, [&](int64_t b) {
    const int64_t f0 = b * kBlock, n = std::min(kBlock, features - f0);
    for (int64_t row = 0; row < index.rows; ++row)
      std::fill(sums + row * features + f0, sums + row * features + f0 + n, C(0));
    for (int64_t i = 0; i < index.count; ++i) {
      const int64_t row = index.at(args.inputs[1], i);
      if (row == padding) continue;
      C* to = sums + row * features + f0;
      const T* from = grad + i * features + f0;
#pragma GCC ivdep
      for (int64_t f = 0; f < n; ++f) to[f] += load(from[f]);
    }
    if constexpr (!std::is_same_v<T, C>) {
      for (int64_t row = 0; row < index.rows; ++row)
        for (int64_t f = row * features + f0; f < row * features + f0 + n; ++f)
          store(static_cast<T*>(args.outputs[0]) + f, sums[f]);
    }
  });
}

std::unique_ptr<PreparedKernel> prepare_backward(const KernelQuery& q, const PrepareContext& context) {
  const int64_t rows = get_attr<int64_t>(q.attrs, "num_embeddings"),
                padding = get_attr<int64_t>(q.attrs, "padding_idx");
  const Index index = make_index(q.inputs[1], rows);
  const int64_t features = q.outputs[0].shape[1];
  const DType dtype = q.inputs[0].dtype;
  const int threads = threads_for(context, static_cast<double>((index.count + rows) * features));
  const uint64_t workspace = dtype_size(dtype) == 2 ? static_cast<uint64_t>(rows * features) * sizeof(float) : 0;
  return dispatch_floating(dtype, "embedding_backward", [&](auto type) {
    using T = decltype(type);
    return make_kernel(workspace, [=](const KernelArgs& args) {
      for (int64_t i = 0; i < index.count; ++i) {
        if (!index.valid(index.at(args.inputs[1], i))) index.fail_at("embedding_backward", args.inputs[1], i);
      }
      void* sums = std::is_same_v<T, Compute<T>> ? args.outputs[0] : args.workspace;
      add_rows<T>(index, features, padding, threads, args, static_cast<Compute<T>*>(sums));
    });
  });
}

// Each thread owns a range of features and adds rows in their order: the result does not depend on threads.
template <class T>
void add_bags(const Index& index, const Index& bag, int64_t features, int64_t padding, int threads,
              const KernelArgs& args, Compute<T>* sums) {
  using C = Compute<T>;
  const T *table = static_cast<const T*>(args.inputs[0]), *scales = static_cast<const T*>(args.inputs[3]);
  const int64_t block = threads == 1 ? std::max<int64_t>(features, 1) : 64;
  parallel_each(threads, (features + block - 1) / block, [&](int64_t b) {
    const int64_t f0 = b * block, n = std::min(block, features - f0);
    for (int64_t row = 0; row < bag.rows; ++row)
      std::fill(sums + row * features + f0, sums + row * features + f0 + n, C(0));
    for (int64_t i = 0; i < index.count; ++i) {
      constexpr int64_t kRowsAhead = 8, kLine = 64 / sizeof(T);
      if (i + kRowsAhead < index.count) {
        const T* const later = table + index.at(args.inputs[1], i + kRowsAhead) * features + f0;
        for (int64_t f = 0; f < n; f += kLine) __builtin_prefetch(later + f);
      }
      const int64_t row = index.at(args.inputs[1], i);
      if (row == padding) continue;
      C* to = sums + bag.at(args.inputs[2], i) * features + f0;
      const T* from = table + row * features + f0;
      if (scales == nullptr) {
#pragma GCC ivdep
        for (int64_t f = 0; f < n; ++f) to[f] += load(from[f]);
      } else {
        const C scale = load(scales[i]);
#pragma GCC ivdep
        for (int64_t f = 0; f < n; ++f) to[f] += scale * load(from[f]);
      }
    }
    if constexpr (!std::is_same_v<T, C>) {
      for (int64_t row = 0; row < bag.rows; ++row)
        for (int64_t f = row * features + f0; f < row * features + f0 + n; ++f)
          store(static_cast<T*>(args.outputs[0]) + f, sums[f]);
    }
  });
}

std::unique_ptr<PreparedKernel> prepare_bag(const KernelQuery& q, const PrepareContext& context) {
  const int64_t features = q.outputs[0].shape[1], padding = get_attr<int64_t>(q.attrs, "padding_idx");
  const Index index = make_index(q.inputs[1], q.inputs[0].shape[0]);
  const Index bag = make_index(q.inputs[2], q.outputs[0].shape[0]);
  const DType dtype = q.inputs[0].dtype;
  const int threads = threads_for(context, static_cast<double>((index.count + bag.rows) * features));
  const uint64_t workspace = dtype_size(dtype) == 2 ? static_cast<uint64_t>(bag.rows * features) * sizeof(float) : 0;
  return dispatch_floating(dtype, "embedding_bag", [&](auto type) {
    using T = decltype(type);
    return make_kernel(workspace, [=](const KernelArgs& args) {
      for (int64_t i = 0; i < index.count; ++i) {
        if (!index.valid(index.at(args.inputs[1], i))) index.fail_at("embedding_bag", args.inputs[1], i);
        if (!bag.valid(bag.at(args.inputs[2], i))) bag.fail_at("embedding_bag", args.inputs[2], i);
      }
      void* sums = std::is_same_v<T, Compute<T>> ? args.outputs[0] : args.workspace;
      add_bags<T>(index, bag, features, padding, threads, args, static_cast<Compute<T>*>(sums));
    });
  });
}

}  // namespace

void add_embedding_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "embedding", .prepare = prepare_embedding});
  table.add(DeviceKind::kCpu, {.op = "embedding_backward", .prepare = prepare_backward});
  table.add(DeviceKind::kCpu, {.op = "embedding_bag", .prepare = prepare_bag});
}

}  // namespace sluice::cpu
