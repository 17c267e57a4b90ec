// max_pool, avg_pool and their adjoints.
#include <limits>

#include "kernels/cuda/families.h"
#include "kernels/cuda/spatial.h"

namespace sluice::cuda {
namespace {

Windows windows_of(const plan::KernelQuery& query, const TensorSpec& x, const TensorSpec& y, bool dilated) {
  Windows w;
  w.x = spatial_dims(x.shape);
  w.y = spatial_dims(y.shape);
  w.kernel = spatial_values(get_attr<Ints>(query.attrs, "kernel_size"), 1);
  w.step = spatial_values(get_attr<Ints>(query.attrs, "stride"), 1);
  w.padding = spatial_values(get_attr<Ints>(query.attrs, "padding"), 0);
  if (dilated) w.dilation = spatial_values(get_attr<Ints>(query.attrs, "dilation"), 1);
  return w;
}

Writer begin(const plan::KernelQuery& query, const Windows& w, const TensorSpec& x, const TensorSpec& y) {
  Writer writer(query);
  writer.compute(x.dtype);
  writer.constant("kChannels", x.shape[1]);
  writer.constant("kTaps", positions(w.kernel));
  writer.add(window_functions(w) + offset_function("x_at", x) + offset_function("y_at", y));
  return writer;
}

// The value of a window without elements, as on the CPU.
std::string lowest_text(DType dtype) {
  if (is_floating(dtype)) return "(C)-INFINITY";
  if (dtype == DType::kUInt8) return "0";
  return fmt::format("(C)(-{}ll - 1)", (uint64_t{1} << (8 * dtype_size(dtype) - 1)) - 1);
}

// With two outputs also where the maxima are.
Generated max_pool(const plan::KernelQuery& query) {
  const TensorSpec &x = query.inputs[0], &y = query.outputs[0];
  const Windows w = windows_of(query, x, y, true);
  Writer writer = begin(query, w, x, y);
  const bool indices = query.outputs.size() == 2;
  if (indices) writer.add(offset_function("i_at", query.outputs[1]));
  return {{writer.each(
      "", numel(y.shape),
      fmt::format(R"(    const Spot at = y_spot(i);
    const Index n = at.rest / kChannels, c = at.rest % kChannels;
    C best = {};
    i64 where = -1;
    for (Index k = 0; k < kTaps; ++k) {{
      Index from[3];
      if (!tap(at.at, k_spot(k).at, from)) continue;
      const C v = load(in0[x_at(n, c, from)]);
      if (where >= 0 && !(v > best || v != v)) continue;
      best = v;
      where = ((i64)from[0] * {} + from[1]) * {} + from[2];
    }}
    store(out0 + y_at(n, c, at.at), best);
    {}
)",
                  lowest_text(x.dtype), w.x[1], w.x[2], indices ? "out1[i_at(n, c, at.at)] = where;" : ""))}};
}

// A block per plane, or per planes of 32 channels that lie next to each other. Windows come in their order, as many at
// once as the block has threads for a plane; of those that chose one place the first adds all of them up.
Generated max_pool_backward(const plan::KernelQuery& query) {
  const TensorSpec &y = query.inputs[0], &x = query.outputs[0];
  Windows w;
  w.x = spatial_dims(x.shape);
  w.y = spatial_dims(y.shape);
  Writer writer = begin(query, w, x, y);
  writer.add(offset_function("i_at", query.inputs[1]));
  const int64_t across = x.strides[1] == 1 && x.shape[1] > 1 ? 32 : 1, groups = (x.shape[1] + across - 1) / across;
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"kPositions", positions(w.x)},
                                    {"kWindows", positions(w.y)},
                                    {"kAcross", across},
                                    {"kSlots", kThreads / across},
                                    {"kGroups", groups}}) {
    writer.constant(name, value);
  }
  Source source = writer.blocks("", x.shape[0] * groups, R"(  __shared__ Index chosen[kThreads];
  __shared__ C given[kThreads];
  const int t = (int)threadIdx.x, lane = t % kAcross, slot = t / kAcross;
  const Index n = (Index)blockIdx.x / kGroups, c = (Index)blockIdx.x % kGroups * kAcross + lane;
  for (Index s = slot; c < kChannels && s < kPositions; s += kSlots) store(out0 + x_at(n, c, x_spot(s).at), (C)0);
  for (Index first = 0; first < kWindows; first += kSlots) {
    __syncthreads();
    Index place = -1;
    C g = 0;
    if (c < kChannels && first + slot < kWindows) {
      const Spot at = y_spot(first + slot);
      const i64 where = in1[i_at(n, c, at.at)];
      if (where < 0 || where >= kPositions) {
        raise(word, ticket, kPositions);
      } else {
        place = (Index)where;
        g = load(in0[y_at(n, c, at.at)]);
      }
    }
    chosen[t] = place;
    given[t] = g;
    __syncthreads();
    if (place < 0) continue;
    int k = 0;
    while (chosen[k * kAcross + lane] != place) ++k;
    if (k != slot) continue;
    Out0* to = out0 + x_at(n, c, x_spot(place).at);
    C sum = load(*to);
    for (; k < kSlots; ++k)
      if (chosen[k * kAcross + lane] == place) sum += given[k * kAcross + lane];
    store(to, sum);
  }
)");
  source.describe = [](const int64_t* values) {
    return Status(ErrorKind::kIndex,
                  fmt::format("max_pool_backward: an index is out of range: the input has {} positions "
                              "per channel; indices must be max_pool's",
                              values[0]));
  };
  return {{source}};
}

// "C divisor(y)": what a window's sum is divided by (torch.avg_poolNd).
std::string divisor_function(const plan::KernelQuery& query, const Windows& w) {
  const int64_t fixed = get_attr<int64_t>(query.attrs, "divisor_override");
  std::string text =
      fmt::format("__device__ inline C divisor(const Index* y) {{\n  Index count = {};\n", fixed == 0 ? 1 : fixed);
  for (int d = 0; d < 3 && fixed == 0; ++d) {
    const bool padded = get_attr<bool>(query.attrs, "count_include_pad");
    text +=
        fmt::format(R"(  {{
    const Index begin = y[{0}] * {1} - {2}, end = begin + {3} < {4} ? begin + {3} : {4};
    count *= {5};
  }}
)",
                    d, w.step[d], w.padding[d], w.kernel[d], w.x[d] + w.padding[d],
                    padded ? "end - begin" : fmt::format("(end < {0} ? end : {0}) - (begin > 0 ? begin : 0)", w.x[d]));
  }
  return text + "  return (C)count;\n}\n";
}

Generated avg_pool(const plan::KernelQuery& query) {
  const TensorSpec &x = query.inputs[0], &y = query.outputs[0];
  const Windows w = windows_of(query, x, y, false);
  Writer writer = begin(query, w, x, y);
  writer.add(divisor_function(query, w));
  return {{writer.each("", numel(y.shape), R"(    const Spot at = y_spot(i);
    const Index n = at.rest / kChannels, c = at.rest % kChannels;
    C sum = 0;
    for (Index k = 0; k < kTaps; ++k) {
      Index from[3];
      if (tap(at.at, k_spot(k).at, from)) sum += load(in0[x_at(n, c, from)]);
    }
    store(out0 + y_at(n, c, at.at), sum / divisor(at.at));
)")}};
}

Generated avg_pool_backward(const plan::KernelQuery& query) {
  const TensorSpec &y = query.inputs[0], &x = query.outputs[0];
  const Windows w = windows_of(query, x, y, false);
  Writer writer = begin(query, w, x, y);
  writer.add(divisor_function(query, w));
  return {{writer.each("", numel(x.shape), R"(    const Spot at = x_spot(i);
    const Index n = at.rest / kChannels, c = at.rest % kChannels;
    C sum = 0;
    for (Index k = 0; k < kTaps; ++k) {
      Index from[3];
      if (untap(at.at, k_spot(k).at, from)) sum += load(in0[y_at(n, c, from)]) / divisor(from);
    }
    store(out0 + x_at(n, c, at.at), sum);
)")}};
}

}  // namespace

void add_pooling_kernels(KernelTable& table) {
  add_generated(table, "max_pool", max_pool);
  add_generated(table, "max_pool_values", max_pool);
  add_generated(table, "max_pool_backward", max_pool_backward);
  add_generated(table, "avg_pool", avg_pool);
  add_generated(table, "avg_pool_backward", avg_pool_backward);
}

}  // namespace sluice::cuda
