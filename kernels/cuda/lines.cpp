// argsort, running_argmax, running_argmin, linear_recurrence. argsort is a stable merge sort. A block sorts a tile in
// shared memory; longer lines are merged run by run, a launch for each width. An element finds its place by a search in
// the run that its own is merged with, so that all of them move at once, whatever order they are in.
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kTileItems = 1024;

// place_of(): where element k of the line goes when runs of `width` are merged in pairs; of equal ones the earlier is
// first.
std::string order_functions(bool descending) {
  return fmt::format(R"(__device__ inline bool less(C a, C b) {{ return a < b || (b != b && a == a); }}
__device__ inline bool first(C a, C b) {{ return {}; }}
__device__ inline Index place_of(const C* values, Index length, Index width, Index k) {{
  const Index run = k / width, sibling = (run ^ 1) * width;
  Index low = sibling < length ? sibling : length, high = sibling + width < length ? sibling + width : length;
  const Index begin = low;
  const C v = values[k];
  while (low < high) {{
    const Index middle = low + (high - low) / 2;
    const C other = values[middle];
    if (run % 2 == 0 ? first(other, v) : !first(v, other)) low = middle + 1;
    else high = middle;
  }}
  return run / 2 * 2 * width + (k - run * width) + (low - begin);
}}
)",
                     descending ? "less(b, a)" : "less(a, b)");
}

struct Lines {
  int dim = 0;
  int64_t length = 0, count = 0;
  Shape firsts = {};  // the shape of the lines' first elements
};

Lines lines_of(const plan::KernelQuery& query) {
  const Shape& x = query.inputs[0].shape;
  Lines lines{normalize_axis(get_attr<int64_t>(query.attrs, "dim"), x.rank(), query.op.c_str()), 0, 0, x};
  lines.length = x[lines.dim];
  lines.firsts[lines.dim] = std::min<int64_t>(lines.length, 1);
  lines.count = numel(lines.firsts);
  return lines;
}

// The last of equal ones, and of NaN.
Generated running_extremum(const plan::KernelQuery& query) {
  const Lines lines = lines_of(query);
  const TensorSpec &in = query.inputs[0], &out = query.outputs[0];
  Writer writer(query);
  writer.compute(in.dtype);
  writer.add(index_function("from", lines.firsts, in.strides) + index_function("to", lines.firsts, out.strides));
  writer.constant("kFromStep", in.strides[lines.dim]);
  writer.constant("kToStep", out.strides[lines.dim]);
  writer.add(fmt::format(R"(struct A {{ C v; i64 at; }};
__device__ inline A join(A a, A b) {{
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  return b.v != b.v || (a.v == a.v && b.v {} a.v) ? b : a;
}}
)",
                         query.op == "running_argmax" ? ">=" : "<="));
  return {{scan(writer, {.lines = lines.count,
                         .length = lines.length,
                         .first = "A{0, -1}",
                         .take = "A{(C)load(in0[from(unit) + (i) * kFromStep]), (i64)(i)}",
                         .put = "      out0[to(unit) + i * kToStep] = total.at;\n"})}};
}

// y = a * y + b, or a * y where b has the first elements alone. A thread goes along a line, since products of factors
// may overflow where the numbers do not.
Generated linear_recurrence(const plan::KernelQuery& query) {
  const Lines lines = lines_of(query);
  const TensorSpec &a = query.inputs[0], &b = query.inputs[1], &out = query.outputs[0];
  Writer writer(query);
  writer.compute(a.dtype);
  writer.add(fmt::format("typedef {} Total;\n", is_floating(a.dtype) ? "double" : "i64"));
  writer.add(index_function("a_at", lines.firsts, a.strides) + index_function("b_at", lines.firsts, b.strides) +
             index_function("to", lines.firsts, out.strides));
  writer.constant("kLength", lines.length);
  writer.constant("kAStep", a.strides[lines.dim]);
  writer.constant("kBStep", b.strides[lines.dim]);
  writer.constant("kAdds", a.shape == b.shape);
  writer.constant("kToStep", out.strides[lines.dim]);
  return {{writer.each("", lines.count, R"(    Total y = 0;
    for (Index k = 0; k < kLength; ++k) {
      if (k > 0) y = (Total)load(in0[a_at(i) + k * kAStep]) * y;
      if (k == 0)
        y = (Total)load(in1[b_at(i)]);
      else if (kAdds)
        y += (Total)load(in1[b_at(i) + k * kBStep]);
      store(out0 + to(i) + k * kToStep, (C)y);
    }
)")}};
}

Generated argsort(const plan::KernelQuery& query) {
  const TensorSpec &in = query.inputs[0], &out = query.outputs[0];
  const auto [dim, length, lines, firsts] = lines_of(query);
  const int64_t tiles = (length + kTileItems - 1) / kTileItems;
  Writer writer(query);
  writer.compute(in.dtype);
  writer.constant("kLength", length);
  writer.constant("kFromStep", in.strides[dim]);
  writer.constant("kToStep", out.strides[dim]);
  writer.constant("kTile", kTileItems);
  writer.constant("kTiles", tiles);
  writer.add(index_function("from", firsts, in.strides) + index_function("to", firsts, out.strides) +
             order_functions(get_attr<bool>(query.attrs, "descending")));
  writer.constant("kFirst", get_attr<int64_t>(query.attrs, "first"));
  writer.constant("kEnd", get_attr<int64_t>(query.attrs, "first") + out.shape[dim]);
  writer.add(R"(// Where the part that is asked for has that position.
__device__ inline void put(i64* out, Index line, Index at, Index place) {
  if (at >= kFirst && at < kEnd) out[to(line) + (at - kFirst) * kToStep] = (i64)place;
}
)");
  Generated generated;
  const uint64_t values = align_up(static_cast<uint64_t>(lines * length) * compute_size(in.dtype), 64);
  const uint64_t places = align_up(static_cast<uint64_t>(lines * length) * writer.index_size(), 64);
  if (tiles > 1) generated.workspace_bytes = 2 * (values + places);
  const auto values_at = [&](int which) {
    return fmt::format("((C*)((char*)work + {}))", static_cast<uint64_t>(which) * values);
  };
  const auto places_at = [&](int which) {
    return fmt::format("((Index*)((char*)work + {}))", 2 * values + static_cast<uint64_t>(which) * places);
  };
  const auto result = [](const char* line, const char* at, const char* place) {
    return fmt::format("put(out0, {}, {}, {});\n", line, at, place);
  };
  generated.stages.push_back(
      writer.blocks("tiles", lines * tiles,
                    R"(  __shared__ C values[2][kTile];
  __shared__ Index places[2][kTile];
  const Index line = (Index)blockIdx.x / kTiles, begin = (Index)blockIdx.x % kTiles * kTile;
  const Index length = begin + kTile < kLength ? kTile : kLength - begin, in_line = from(line);
  for (Index k = (Index)threadIdx.x; k < length; k += kThreads) {
    values[0][k] = (C)load(in0[in_line + (begin + k) * kFromStep]);
    places[0][k] = begin + k;
  }
  __syncthreads();
  int now = 0;
  for (Index width = 1; width < kTile; width *= 2, now = 1 - now) {
    for (Index k = (Index)threadIdx.x; k < length; k += kThreads) {
      const Index at = place_of(values[now], length, width, k);
      values[1 - now][at] = values[now][k];
      places[1 - now][at] = places[now][k];
    }
    __syncthreads();
  }
  for (Index k = (Index)threadIdx.x; k < length; k += kThreads) {
)" +
                        (tiles == 1 ? "    " + result("line", "k", "places[now][k]")
                                    : fmt::format("    {}[line * kLength + begin + k] = values[now][k];\n"
                                                  "    {}[line * kLength + begin + k] = places[now][k];\n",
                                                  values_at(0), places_at(0))) +
                        "  }\n"));
  int now = 0;
  for (int64_t width = kTileItems; width < length; width *= 2, now = 1 - now) {
    const bool last = width * 2 >= length;
    Writer merge = writer;
    merge.constant("kWidth", width);
    generated.stages.push_back(merge.each(
        fmt::format("merge{}", width).c_str(), lines * length,
        fmt::format(R"(    const Index line = i / kLength, k = i % kLength;
    const C* values = {} + line * kLength;
    const Index at = place_of(values, kLength, kWidth, k), place = {}[i];
)",
                    values_at(now), places_at(now)) +
            (last ? "    " + result("line", "at", "place")
                  : fmt::format("    {}[line * kLength + at] = values[k];\n    {}[line * kLength + at] = place;\n",
                                values_at(1 - now), places_at(1 - now)))));
  }
  return generated;
}

}  // namespace

void add_lines_kernels(KernelTable& table) {
  add_generated(table, "argsort", argsort);
  for (const char* op : {"running_argmax", "running_argmin"}) add_generated(table, op, running_extremum);
  add_generated(table, "linear_recurrence", linear_recurrence);
}

}  // namespace sluice::cuda
