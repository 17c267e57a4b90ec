#include "kernels/cuda/spatial.h"

#include "kernels/cpu/support/support.h"

namespace sluice::cuda {

Three spatial_dims(const Shape& shape) {
  Ints dims;
  for (int i = 2; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return spatial_values(dims, 1);
}

Three spatial_values(const Ints& values, int64_t missing) {
  Three all{missing, missing, missing};
  for (size_t d = 0; d < values.size(); ++d) all[3 - values.size() + d] = values[d];
  return all;
}

std::string spot_function(const char* name, const Three& dims) {
  std::string text = fmt::format("__device__ inline Spot {}(Index i) {{\n  Spot s;\n", name);
  for (int d = 2; d >= 0; --d) text += fmt::format("  s.at[{0}] = i % {1};\n  i /= {1};\n", d, dims[d]);
  return text + "  s.rest = i;\n  return s;\n}\n";
}

std::string offset_function(const char* name, const TensorSpec& spec) {
  std::string text =
      fmt::format("__device__ inline Index {}(Index n, Index c, const Index* at) {{ return n * {} + c * {}", name,
                  spec.strides[0], spec.strides[1]);
  const int missing = 5 - spec.shape.rank();
  for (int i = 2; i < spec.shape.rank(); ++i) text += fmt::format(" + at[{}] * {}", i - 2 + missing, spec.strides[i]);
  return text + "; }\n";
}

std::string row_spot(const Shape& shape) {
  return "struct Spot { Index rest, at[3]; };\n" + spot_function("row_spot", spatial_dims(shape));
}

std::string place_function(const char* name, const TensorSpec& spec) {
  const int64_t each = positions(spatial_dims(spec.shape));
  if (spec.shape.rank() > 2 && spec.strides == channels_last_strides(spec.shape))
    return fmt::format("__device__ inline Index {}(Index c, Index row) {{ return row * kChannels + c; }}\n", name);
  if (is_contiguous(spec.shape, spec.strides)) {
    return fmt::format(
        "__device__ inline Index {0}(Index c, Index row) {{ return (row / {1} * kChannels + c) * {1} + row % {1}; }}\n",
        name, each);
  }
  return offset_function(fmt::format("{}_offset", name).c_str(), spec) +
         fmt::format(
             "__device__ inline Index {0}(Index c, Index row) {{\n  const Spot s = row_spot(row);\n"
             "  return {0}_offset(s.rest, c, s.at);\n}}\n",
             name);
}

std::string in_memory_order(const TensorSpec& spec) {
  if (spec.strides[1] == 1) return "    const Index c = i % kChannels, row = i / kChannels;\n";
  const int64_t each = positions(spatial_dims(spec.shape));
  return fmt::format("    const Index c = i / {0} % kChannels, row = i / ({0} * kChannels) * {0} + i % {0};\n", each);
}

std::string channel_operand(const plan::KernelQuery& query, size_t i, const char* fallback, const char* c) {
  return cpu::has_operand(query.inputs, i) ? fmt::format("(C)load(in{}[{}])", i, c) : fallback;
}

std::string window_functions(const Windows& w) {
  std::string text = spot_function("x_spot", w.x) + spot_function("k_spot", w.kernel) + spot_function("y_spot", w.y);
  text += "__device__ inline bool tap(const Index* y, const Index* k, Index* x) {\n";
  for (int d = 0; d < 3; ++d) {
    text +=
        fmt::format("  x[{0}] = y[{0}] * {1} - {2} + k[{0}] * {3};\n  if (x[{0}] < 0 || x[{0}] >= {4}) return false;\n",
                    d, w.step[d], w.padding[d], w.dilation[d], w.x[d]);
  }
  text += "  return true;\n}\n__device__ inline bool untap(const Index* x, const Index* k, Index* y) {\n";
  for (int d = 0; d < 3; ++d) {
    text += fmt::format(R"(  y[{0}] = x[{0}] + {2} - k[{0}] * {3};
  if (y[{0}] < 0 || y[{0}] % {1} != 0) return false;
  y[{0}] /= {1};
  if (y[{0}] >= {4}) return false;
)",
                        d, w.step[d], w.padding[d], w.dilation[d], w.y[d]);
  }
  return "struct Spot { Index rest, at[3]; };\n" + text + "  return true;\n}\n";
}

}  // namespace sluice::cuda
