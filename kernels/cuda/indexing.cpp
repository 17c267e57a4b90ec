// gather, scatter, scatter_add, index_select, index_add, embedding and its backward. What adds up or overwrites goes
// through the indices once per output element, in their order: no atomics, so results are the same on every run.
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

constexpr const char* kOps[] = {"gather", "scatter", "scatter_add", "index_select", "index_add"};

// Of raise(index, axis, size, op).
Status out_of_range(const int64_t* v) {
  return {ErrorKind::kIndex, fmt::format("{}: index out of range: {} at axis {} of size {}; must be in [0, {}]",
                                         kOps[v[3]], v[0], v[1], v[2], v[2] - 1)};
}

struct Axis {
  int dim;
  int64_t size;
};

Writer begin(const plan::KernelQuery& query, const Axis& axis) {
  Writer writer(query);
  int64_t op = 0;
  while (query.op != kOps[op]) ++op;
  writer.constant("kAxis", axis.dim);
  writer.constant("kSize", axis.size);
  writer.constant("kOp", op);
  writer.add(R"(__device__ inline bool is_row(Failure* word, u64 ticket, i64 index) {
  if (index >= 0 && index < kSize) return true;
  raise(word, ticket, index, kAxis, kSize, kOp);
  return false;
}
)");
  return writer;
}

Axis axis_of(const plan::KernelQuery& query) {
  const Shape& x = query.inputs[0].shape;
  const int dim = normalize_axis(get_attr<int64_t>(query.attrs, "dim"), x.rank(), query.op.c_str());
  return {dim, x[dim]};
}

Strides without(Strides strides, int dim) {
  strides[dim] = 0;
  return strides;
}

// One index per output element (gather) or per slice (index_select), of which elements are copied as bits.
Generated pick(const plan::KernelQuery& query) {
  const Axis axis = axis_of(query);
  const TensorSpec &x = query.inputs[0], &index = query.inputs[1], &out = query.outputs[0];
  Strides index_strides = index.strides;
  if (query.op == "index_select") {
    index_strides = Shape::filled(out.shape.rank(), 0);
    index_strides[axis.dim] = index.strides[0];
  }
  Writer writer = begin(query, axis);
  writer.add(index_function("index_at", out.shape, index_strides) +
             index_function("from", out.shape, without(x.strides, axis.dim)) +
             index_function("to", out.shape, out.strides));
  writer.constant("kStep", x.strides[axis.dim]);
  Source source = writer.each("", numel(out.shape), R"(    const i64 index = in1[index_at(i)];
    if (is_row(word, ticket, index)) out0[to(i)] = in0[from(i) + (Index)index * kStep];
)");
  source.describe = out_of_range;
  return {{source}};
}

// out = in0, then for every index of an element's line that names it: in2 there (scatter) or added to it.
Generated collect(const plan::KernelQuery& query) {
  const Axis axis = axis_of(query);
  const TensorSpec &base = query.inputs[0], &index = query.inputs[1], &source = query.inputs[2],
                   &out = query.outputs[0];
  const bool whole_slices = query.op == "index_add";
  // Lines of the index: those of an output element, when its other coordinates are inside the index.
  std::string inside = "true";
  Strides index_strides = without(whole_slices ? Shape::filled(out.shape.rank(), 0) : index.strides, axis.dim);
  int64_t below = 1;
  for (int d = out.shape.rank() - 1; d >= 0; --d) {
    if (d != axis.dim && !whole_slices && index.shape[d] < out.shape[d]) {
      inside += fmt::format(" && i / {} % {} < {}", below, out.shape[d], index.shape[d]);
    }
    below *= out.shape[d];
  }
  int64_t after = 1;
  for (int d = axis.dim + 1; d < out.shape.rank(); ++d) after *= out.shape[d];
  Writer writer = begin(query, axis);
  writer.compute(out.dtype);
  writer.constant("kAfter", after);
  writer.constant("kCount", index.shape[whole_slices ? 0 : axis.dim]);
  writer.constant("kIndexStep", index.strides[whole_slices ? 0 : axis.dim]);
  writer.constant("kSourceStep", source.strides[axis.dim]);
  writer.add(index_function("base_at", out.shape, base.strides) + index_function("to", out.shape, out.strides) +
             index_function("index_at", out.shape, index_strides) +
             index_function("source_at", out.shape, without(source.strides, axis.dim)));
  Source made = writer.each("", numel(out.shape),
                            fmt::format(R"(    C v = (C)load(in0[base_at(i)]);
    const Index row = i / kAfter % kSize, count = {} ? kCount : 0;
    for (Index k = 0; k < count; ++k) {{
      const i64 index = in1[index_at(i) + k * kIndexStep];
      if (is_row(word, ticket, index) && index == row) v {} (C)load(in2[source_at(i) + k * kSourceStep]);
    }}
    store(out0 + to(i), v);
)",
                                        inside, query.op == "scatter" ? "=" : "+="));
  made.describe = out_of_range;
  return {{made}};
}

template <bool kBackward>
Status no_entry(const int64_t* v) {
  return {ErrorKind::kIndex,
          fmt::format("{}: index is out of range: {} at position {}; it must be at least 0 and below {}",
                      kBackward ? "embedding_backward" : "embedding", v[0], v[1], v[2])};
}

// in0 is the table, or the gradient of what was looked up; in1 the indices.
Writer begin_embedding(const plan::KernelQuery& query, const Shape& table) {
  Writer writer(query);
  writer.compute(query.inputs[0].dtype);
  writer.constant("kRows", table[0]);
  writer.constant("kFeatures", table[1]);
  writer.constant("kCount", numel(query.inputs[1].shape));
  return writer;
}

Generated embedding(const plan::KernelQuery& query) {
  const Writer writer = begin_embedding(query, query.inputs[0].shape);
  Source source = writer.each("", numel(query.outputs[0].shape), R"(    const i64 row = in1[i / kFeatures];
    if (row >= 0 && row < kRows) {
      out0[i] = in0[(Index)row * kFeatures + i % kFeatures];
    } else {
      raise(word, ticket, row, i / kFeatures, kRows);
    }
)");
  source.describe = no_entry<false>;
  return {{source}};
}

Generated embedding_backward(const plan::KernelQuery& query) {
  Writer writer = begin_embedding(query, query.outputs[0].shape);
  writer.constant("kPadding", get_attr<int64_t>(query.attrs, "padding_idx"));
  Source check = writer.each("check", numel(query.inputs[1].shape), R"(    const i64 row = in1[i];
    if (row < 0 || row >= kRows) raise(word, ticket, row, i, kRows);
)");
  check.describe = no_entry<true>;
  return {{check, writer.each("", numel(query.outputs[0].shape), R"(    const Index row = i / kFeatures;
    C sum = 0;
    for (Index k = 0; k < (row == kPadding ? 0 : kCount); ++k) {
      if (in1[k] == row) sum += load(in0[k * kFeatures + i % kFeatures]);
    }
    store(out0 + i, sum);
)")}};
}

}  // namespace

void add_indexing_kernels(KernelTable& table) {
  for (const char* op : {"gather", "index_select"}) add_generated(table, op, pick);
  for (const char* op : {"scatter", "scatter_add", "index_add"}) add_generated(table, op, collect);
  add_generated(table, "embedding", embedding);
  add_generated(table, "embedding_backward", embedding_backward);
}

}  // namespace sluice::cuda
