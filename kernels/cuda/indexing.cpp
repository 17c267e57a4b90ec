// gather, scatter, scatter_add, scatter_reduce, index_select, index_add, embedding and its backward. A kernel that adds
// up or overwrites first orders its elements by their places, and takes those of one place in the order of their
// positions: no atomics, so results are the same on every run, and the time grows with the elements, not with elements
// times places.
#include "kernels/cuda/families.h"
#include "kernels/cuda/ordering.h"

namespace sluice::cuda {
namespace {

constexpr const char* kOps[] = {"gather", "scatter", "scatter_add", "index_select", "index_add", "scatter_reduce"};

// The error for the values of raise(index, axis, size, op).
Status out_of_range(const int64_t* v) {
  return {ErrorKind::kIndex, fmt::format("{}: index out of range: {} at axis {} of size {}; must be in [0, {}]",
                                         kOps[v[3]], v[0], v[1], v[2], v[2] - 1)};
}

struct Axis {
  int dim;
  int64_t size;
};

Writer begin(const plan::KernelQuery& query, const Axis& axis, int64_t elements = 0) {
  Writer writer(query, 0, elements);
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

// Says how the elements that come to one place are joined, one after the other.
struct Join {
  const char* name;
  const char* next;  // statements that take the element x to the C v, which begins as what lies there
};
constexpr Join kJoins[] = {
    {"sum", "v += x;"},
    {"prod", "v *= x;"},
    {"amax", "if (v == v && (x != x || x > v)) v = x;"},
    {"amin", "if (v == v && (x != x || x < v)) v = x;"},
};

const Join& join_of(const plan::KernelQuery& query) {
  const Join* join = kJoins;
  if (query.op == "scatter_reduce") {
    const auto& reduce = get_attr<std::string>(query.attrs, "reduce");
    while (reduce != join->name) ++join;
  }
  return *join;
}

// out0 as it begins: in0, or zeros.
Source begin_output(const plan::KernelQuery& query, const Writer& writer, bool zeros) {
  const TensorSpec& out = query.outputs[0];
  const TensorSpec& base = zeros ? out : query.inputs[0];
  const int64_t elements = numel(out.shape), pack = 16 / static_cast<int64_t>(dtype_size(out.dtype));
  if (is_contiguous(out.shape, out.strides) && is_contiguous(base.shape, base.strides)) {
    return writer.each(
        "begin", (elements + pack - 1) / pack,
        fmt::format(R"(    const Index at = i * {0};
    if (at + {0} <= {1}) store_pack<{0}>(out0 + at, {2});
    else for (Index k = at; k < {1}; ++k) out0[k] = {3};
)",
                    pack, elements,
                    zeros ? fmt::format("Pack<Out0, {}>{{}}", pack) : fmt::format("load_pack<{}>(in0 + at)", pack),
                    zeros ? "Out0{}" : "in0[k]"));
  }
  Writer with = writer;
  with.add(index_function("base_at", out.shape, base.strides) + index_function("begin_at", out.shape, out.strides));
  return with.each("begin", elements,
                   zeros ? "    out0[begin_at(i)] = Out0{};\n" : "    out0[begin_at(i)] = in0[base_at(i)];\n");
}

// Elements with an index each: ordered by where they go.
Generated scatter(const plan::KernelQuery& query) {
  const Axis axis = axis_of(query);
  const TensorSpec &index = query.inputs[1], &source = query.inputs[2], &out = query.outputs[0];
  const int64_t count = numel(index.shape), places = numel(out.shape);
  const Strides rows = contiguous_strides(out.shape);
  Writer writer = begin(query, axis, std::max(count, places));
  writer.compute(out.dtype);
  writer.constant("kRowStep", rows[axis.dim]);
  writer.constant("kPlaces", places);
  writer.add(index_function("index_at", index.shape, index.strides) +
             index_function("place_of", index.shape, without(rows, axis.dim)) +
             index_function("source_at", index.shape, source.strides) + index_function("to", out.shape, out.strides));
  Generated generated;
  generated.stages.push_back(begin_output(query, writer, false));
  const Ordered ordered = order(writer,
                                {.count = count,
                                 .limit = places,
                                 .key = R"(    const i64 row = in1[index_at(i)];
    key = is_row(word, ticket, row) ? place_of(i) + (Index)row * kRowStep : kPlaces;
)",
                                 .describe = out_of_range},
                                generated);
  const std::string head = fmt::format(R"(    const Index *keys = {}, *places = {}, place = keys[i], count = {};
    if (place == kPlaces) continue;
    Out0* at = out0 + to(place);
)",
                                       ordered.keys, ordered.places, count);
  generated.stages.push_back(
      writer.each("", count,
                  query.op == "scatter"  // the last one stays
                      ? head + "    if (i + 1 == count || keys[i + 1] != place) *at = in2[source_at(places[i])];\n"
                      : head + R"(    if (i > 0 && keys[i - 1] == place) continue;
    C v = (C)load(*at);
    for (Index k = i; k < count && keys[k] == place; ++k) {
      const C x = (C)load(in2[source_at(places[k])]);
      )" + join_of(query).next +
                            "\n    }\n    store(at, v);\n"));
  return generated;
}

// Slices with an index each, added to rows of out0.
struct Slices {
  int64_t count = 0, rows = 0;
  Shape shape = {};                    // of a slice
  Strides from = {}, to = {};          // in it
  int64_t from_step = 0, to_step = 0;  // between slices
  const char* source = "";             // the operand they lie in
  std::string key = {};                // as Order has it
  DescribeFailure describe = nullptr;
};

// Slices are ordered by their rows. A thread adds up some elements of one row, in the order of the slices.
void add_slices(const Writer& writer, const Slices& s, DType dtype, Generated& generated) {
  const Ordered ordered =
      order(writer, {.count = s.count, .limit = s.rows, .key = s.key, .describe = s.describe}, generated);
  const int last = s.shape.rank() - 1;
  const bool dense = last >= 0 && s.from[last] == 1 && s.to[last] == 1;
  int64_t pack = dense ? pack_of(dtype, s.shape[last]) : 1;
  Shape shape = s.shape;
  Strides from = s.from, to = s.to;
  if (pack > 1) {
    shape[last] /= pack;
    from[last] = to[last] = pack;
  }
  Writer with = writer;
  with.add(index_function("from", shape, from) + index_function("to", shape, to));
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"kCount", s.count},
                                    {"kPacks", numel(shape)},
                                    {"kPack", pack},
                                    {"kFromStep", s.from_step},
                                    {"kToStep", s.to_step},
                                    {"kNone", s.rows}}) {
    with.constant(name, value);
  }
  generated.stages.push_back(with.each(
      "", s.count * numel(shape),
      (dense || last < 0 ? std::string("    const Index j = i / kPacks, e = i % kPacks;\n")
                         : std::string("    const Index j = i % kCount, e = i / kCount;\n")) +
          fmt::format(
              "    const Index *keys = {}, *places = {}, row = keys[j];\n    const auto* source = {} + from(e);\n",
              ordered.keys, ordered.places, s.source) +
          R"(    if (row == kNone || (j > 0 && keys[j - 1] == row)) continue;
    Out0* at = out0 + to(e) + row * kToStep;
    const Pack<Out0, kPack> before = load_pack<kPack>(at);
    C sums[kPack];
    for (int p = 0; p < kPack; ++p) sums[p] = (C)load(before.v[p]);
    Index k = j;
    for (; k + 3 < kCount && keys[k + 3] == row; k += 4) {
      const auto a = load_pack<kPack>(source + places[k] * kFromStep);
      const auto b = load_pack<kPack>(source + places[k + 1] * kFromStep);
      const auto c = load_pack<kPack>(source + places[k + 2] * kFromStep);
      const auto d = load_pack<kPack>(source + places[k + 3] * kFromStep);
      for (int p = 0; p < kPack; ++p)
        sums[p] = sums[p] + (C)load(a.v[p]) + (C)load(b.v[p]) + (C)load(c.v[p]) + (C)load(d.v[p]);
    }
    for (; k < kCount && keys[k] == row; ++k) {
      const auto a = load_pack<kPack>(source + places[k] * kFromStep);
      for (int p = 0; p < kPack; ++p) sums[p] += (C)load(a.v[p]);
    }
    Pack<Out0, kPack> sum;
    for (int p = 0; p < kPack; ++p) store(&sum.v[p], sums[p]);
    store_pack<kPack>(at, sum);
)"));
}

Generated index_add(const plan::KernelQuery& query) {
  const Axis axis = axis_of(query);
  const TensorSpec &index = query.inputs[1], &source = query.inputs[2], &out = query.outputs[0];
  Slices s;
  s.count = index.shape[0];
  s.rows = axis.size;
  for (int d = 0; d < out.shape.rank(); ++d) {
    if (d == axis.dim) continue;
    s.shape.push_back(out.shape[d]);
    s.from.push_back(source.strides[d]);
    s.to.push_back(out.strides[d]);
  }
  s.from_step = source.strides[axis.dim];
  s.to_step = out.strides[axis.dim];
  s.source = "in2";
  s.key = fmt::format(R"(    const i64 row = in1[i * {}];
    key = is_row(word, ticket, row) ? (Index)row : (Index){};
)",
                      index.strides[0], s.rows);
  s.describe = out_of_range;
  Writer writer = begin(query, axis, s.count * std::max<int64_t>(numel(s.shape), 1));
  writer.compute(out.dtype);
  Generated generated;
  generated.stages.push_back(begin_output(query, writer, false));
  add_slices(writer, s, out.dtype, generated);
  return generated;
}

template <bool kBackward>
Status no_entry(const int64_t* v) {
  return {ErrorKind::kIndex,
          fmt::format("{}: index is out of range: {} at position {}; it must be at least 0 and below {}",
                      kBackward ? "embedding_backward" : "embedding", v[0], v[1], v[2])};
}

// in0 is the table, or the gradient of what was looked up; in1 the indices.
Writer begin_embedding(const plan::KernelQuery& query, const Shape& table) {
  Writer writer(query, 0, numel(table));
  writer.compute(query.inputs[0].dtype);
  writer.constant("kRows", table[0]);
  writer.constant("kFeatures", table[1]);
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
  const Shape& table = query.outputs[0].shape;
  const Writer writer = begin_embedding(query, table);
  Slices s;
  s.count = numel(query.inputs[1].shape);
  s.rows = table[0];
  s.shape = {table[1]};
  s.from = s.to = {1};
  s.from_step = s.to_step = table[1];
  s.source = "in0";
  s.key = fmt::format(R"(    const i64 row = in1[i];
    if (row < 0 || row >= kRows) raise(word, ticket, row, i, kRows);
    key = row < 0 || row >= kRows || row == {} ? kRows : (Index)row;
)",
                      get_attr<int64_t>(query.attrs, "padding_idx"));
  s.describe = no_entry<true>;
  Generated generated;
  generated.stages.push_back(begin_output(query, writer, true));
  add_slices(writer, s, query.outputs[0].dtype, generated);
  return generated;
}

}  // namespace

void add_indexing_kernels(KernelTable& table) {
  for (const char* op : {"gather", "index_select"}) add_generated(table, op, pick);
  for (const char* op : {"scatter", "scatter_add", "scatter_reduce"}) add_generated(table, op, scatter);
  add_generated(table, "index_add", index_add);
  add_generated(table, "embedding", embedding);
  add_generated(table, "embedding_backward", embedding_backward);
}

}  // namespace sluice::cuda
