// Batch normalisation over (N, C, spatial...), in any layout.
#include "kernels/cuda/families.h"
#include "kernels/cuda/spatial.h"

namespace sluice::cuda {
namespace {

// Rows are the positions of all samples.
Writer begin(const plan::KernelQuery& query, const TensorSpec& x, size_t inputs) {
  Writer writer(query, inputs);
  writer.compute(x.dtype);
  writer.constant("kChannels", x.shape[1]);
  writer.constant("kRows", x.shape[0] * positions(spatial_dims(x.shape)));
  writer.number("kEps", get_attr<double>(query.attrs, "eps"));
  writer.add(row_spot(x.shape));
  return writer;
}

Generated train(const plan::KernelQuery& query) {
  const TensorSpec& x = query.inputs[0];
  Writer writer = begin(query, x, 3);
  // Mean and squared deviations of parts are joined as Chan et al. do.
  writer.add(place_function("x_at", x) + place_function("y_at", query.outputs[0]) + R"(struct A { C n, mean, m2; };
__device__ inline A join(A a, A b) {
  const C n = a.n + b.n;
  if (n == 0) return a;
  const C delta = b.mean - a.mean, share = b.n / n;
  return A{n, a.mean + delta * share, a.m2 + b.m2 + delta * delta * share * a.n};
}
)");
  const int64_t channels = x.shape[1], rows = x.shape[0] * positions(spatial_dims(x.shape));
  Generated generated;
  reduce(writer,
         {.name = "statistics",
          .outputs = channels,
          .length = rows,
          .by_column = x.strides[1] == 1,
          .first = "A{0, 0, 0}",
          .take = "A{1, (C)load(in0[x_at(o, i)]), 0}",
          .finish = "    out1[o] = total.mean;\n    out2[o] = total.m2 / (C)kRows;\n",
          .size = 3 * compute_size(x.dtype)},
         generated);
  generated.stages.push_back(
      writer.each("", channels * rows,
                  in_memory_order(x) + "    const C scale = " + channel_operand(query, 1, "(C)1") +
                      " / sqrt(out2[c] + kEps);\n"
                      "    store(out0 + y_at(c, row), (load(in0[x_at(c, row)]) - out1[c]) * scale + " +
                      channel_operand(query, 2, "(C)0") + ");\n"));
  return generated;
}

Generated infer(const plan::KernelQuery& query) {
  const TensorSpec& x = query.inputs[0];
  Writer writer = begin(query, x, 5);
  writer.add(place_function("x_at", x) + place_function("y_at", query.outputs[0]));
  const int64_t rows = x.shape[0] * positions(spatial_dims(x.shape));
  return {{writer.each("", x.shape[1] * rows,
                       in_memory_order(x) + "    const C scale = " + channel_operand(query, 3, "(C)1") +
                           " / sqrt((C)load(in2[c]) + kEps);\n"
                           "    store(out0 + y_at(c, row), (load(in0[x_at(c, row)]) - (C)load(in1[c])) * scale + " +
                           channel_operand(query, 4, "(C)0") + ");\n")}};
}

// dx = weight/std * (dy - mean(dy) - x_hat * mean(dy * x_hat)); in0 is dy, in1 x.
Generated backward(const plan::KernelQuery& query) {
  const TensorSpec& x = query.inputs[1];
  Writer writer = begin(query, x, 5);
  writer.add(place_function("g_at", query.inputs[0]) + place_function("x_at", x) +
             place_function("y_at", query.outputs[0]) +
             R"(struct A { C sum, dot; };
__device__ inline A join(A a, A b) { return A{a.sum + b.sum, a.dot + b.dot}; }
__device__ inline A term(C g, C d) { return A{g, g * d}; }
)");
  const int64_t channels = x.shape[1], rows = x.shape[0] * positions(spatial_dims(x.shape));
  Generated generated;
  reduce(writer,
         {.name = "sums",
          .outputs = channels,
          .length = rows,
          .by_column = x.strides[1] == 1,
          .first = "A{0, 0}",
          .take = "term((C)load(in0[g_at(o, i)]), load(in1[x_at(o, i)]) - (C)load(in2[o]))",
          .finish = "    out1[o] = total.dot / sqrt((C)load(in3[o]) + kEps);\n    out2[o] = total.sum;\n",
          .size = 2 * compute_size(x.dtype)},
         generated);
  generated.stages.push_back(writer.each("", channels * rows,
                                         in_memory_order(x) + R"(    const C inv_std = 1 / sqrt((C)load(in3[c]) + kEps);
    const C d = load(in1[x_at(c, row)]) - (C)load(in2[c]), scale = inv_std * )" +
                                             channel_operand(query, 4, "(C)1") + R"(;
    const C g = load(in0[g_at(c, row)]) - out2[c] / (C)kRows - d * inv_std * out1[c] / (C)kRows;
    store(out0 + y_at(c, row), scale * g);
)"));
  return generated;
}

}  // namespace

void add_batch_norm_kernels(KernelTable& table) {
  add_generated(table, "batch_norm_train", train);
  add_generated(table, "batch_norm_infer", infer);
  add_generated(table, "batch_norm_backward", backward);
}

}  // namespace sluice::cuda
