// conv, fused_conv, conv_input_grad and conv_weight_grad, where cuDNN does not take them: products whose operands are
// found in the tensors (implicit GEMM).
#include "kernels/cuda/conv/cudnn_convolution.h"
#include "kernels/cuda/conv/fused_convolution.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/spatial.h"

namespace sluice::cuda {
namespace {

// y = conv(x, w): the tensors in these roles, whichever of them are inputs.
struct Roles {
  const TensorSpec &x, &w, &y;
};

Writer begin(const plan::KernelQuery& query, const Roles& r, size_t inputs) {
  Windows windows{spatial_dims(r.x.shape),
                  spatial_dims(r.w.shape),
                  spatial_dims(r.y.shape),
                  spatial_values(get_attr<Ints>(query.attrs, "stride"), 1),
                  spatial_values(get_attr<Ints>(query.attrs, "padding"), 0),
                  spatial_values(get_attr<Ints>(query.attrs, "dilation"), 1)};
  Writer writer(query, inputs);
  writer.compute(r.x.dtype);
  writer.constant("kIn", r.w.shape[1]);
  writer.constant("kOut", r.w.shape[0] / get_attr<int64_t>(query.attrs, "groups"));
  writer.add(window_functions(windows) + offset_function("x_at", r.x) + offset_function("w_at", r.w) +
             offset_function("y_at", r.y));
  return writer;
}

// m are positions of one tensor, n its channels; k goes over the channels of the other and the taps, channels first.
Generated positions_by_channels(const Writer& writer, const plan::KernelQuery& query, Product p) {
  const TensorSpec& z = query.outputs[0];
  p.batch = get_attr<int64_t>(query.attrs, "groups");
  p.m = z.shape[0] * positions(spatial_dims(z.shape));
  p.a_by_row = query.inputs[0].strides[1] == 1;
  p.z_by_row = z.strides[1] == 1;
  p.size = compute_size(z.dtype);
  Generated generated;
  multiply(writer, p, generated);
  return generated;
}

// With what follows it, where it is fused_conv.
Generated conv(const plan::KernelQuery& query) {
  const Roles r{query.inputs[0], query.inputs[1], query.outputs[0]};
  const bool fused = query.op == "fused_conv";
  Writer writer = begin(query, r, fused ? size_t{ConvTail::kInputs} : 3);
  if (fused) writer.number("kEps", ConvTail(query).eps);
  if (ConvTail(query).residual) writer.add(offset_function("r_at", query.inputs[ConvTail::kResidual]));
  writer.add(R"(__device__ inline C a_at(const In0* x, Index g, Index m, Index k) {
  const Spot y = y_spot(m), t = k_spot(k / kIn);
  Index at[3];
  return tap(y.at, t.at, at) ? (C)load(x[x_at(y.rest, g * kIn + k % kIn, at)]) : (C)0;
}
__device__ inline C b_at(const In1* w, Index g, Index k, Index n) {
  return (C)load(w[w_at(g * kOut + n, k % kIn, k_spot(k / kIn).at)]);
}
)");
  Product p;
  p.n = r.w.shape[0] / get_attr<int64_t>(query.attrs, "groups");
  p.k = r.w.shape[1] * positions(spatial_dims(r.w.shape));
  p.a = "a_at(in0, g, m, k)";
  p.b = "b_at(in1, g, k, n)";
  p.put = "const Spot y = y_spot(m);\n    const Index c = g * kOut + n;\n    C v = z;\n" +
          tail_text(query, "r_at(y.rest, c, y.at)") + "    store(out0 + y_at(y.rest, c, y.at), v);\n";
  return positions_by_channels(writer, query, p);
}

Generated conv_input_grad(const plan::KernelQuery& query) {
  const Roles r{query.outputs[0], query.inputs[1], query.inputs[0]};
  Writer writer = begin(query, r, 2);
  writer.add(R"(__device__ inline C a_at(const In0* dy, Index g, Index m, Index k) {
  const Spot x = x_spot(m), t = k_spot(k / kOut);
  Index at[3];
  return untap(x.at, t.at, at) ? (C)load(dy[y_at(x.rest, g * kOut + k % kOut, at)]) : (C)0;
}
__device__ inline C b_at(const In1* w, Index g, Index k, Index n) {
  return (C)load(w[w_at(g * kOut + k % kOut, n, k_spot(k / kOut).at)]);
}
)");
  Product p;
  p.n = r.w.shape[1];
  p.k = r.w.shape[0] / get_attr<int64_t>(query.attrs, "groups") * positions(spatial_dims(r.w.shape));
  p.a = "a_at(in0, g, m, k)";
  p.b = "b_at(in1, g, k, n)";
  p.put = "const Spot x = x_spot(m);\n      store(out0 + x_at(x.rest, g * kIn + n, x.at), z);\n";
  return positions_by_channels(writer, query, p);
}

// m are channels of y; n goes over the channels of x and the taps, k over the positions of y.
Generated conv_weight_grad(const plan::KernelQuery& query) {
  const Roles r{query.inputs[1], query.outputs[0], query.inputs[0]};
  Writer writer = begin(query, r, 2);
  writer.add(R"(__device__ inline C a_at(const In0* dy, Index g, Index m, Index k) {
  const Spot y = y_spot(k);
  return (C)load(dy[y_at(y.rest, g * kOut + m, y.at)]);
}
__device__ inline C b_at(const In1* x, Index g, Index k, Index n) {
  const Spot y = y_spot(k), t = k_spot(n / kIn);
  Index at[3];
  return tap(y.at, t.at, at) ? (C)load(x[x_at(y.rest, g * kIn + n % kIn, at)]) : (C)0;
}
)");
  Product p;
  p.batch = get_attr<int64_t>(query.attrs, "groups");
  p.m = r.w.shape[0] / p.batch;
  p.n = r.w.shape[1] * positions(spatial_dims(r.w.shape));
  p.k = r.y.shape[0] * positions(spatial_dims(r.y.shape));
  p.a_by_row = r.y.strides[1] != 1;
  p.b_by_row = r.x.strides[1] == 1;
  p.a = "a_at(in0, g, m, k)";
  p.b = "b_at(in1, g, k, n)";
  p.put = "store(out0 + w_at(g * kOut + m, n % kIn, k_spot(n / kIn).at), z);\n";
  p.size = compute_size(r.w.dtype);
  Generated generated;
  multiply(writer, p, generated);
  return generated;
}

}  // namespace

void add_convolution_kernels(KernelTable& table) {
  const LibraryKernels library{cudnn_name(), cudnn_convolution, cudnn_convolution_names};
  add_generated(table, "conv", conv, library);
  add_generated(table, "fused_conv", conv, {library.name, cudnn_fused_convolution, cudnn_convolution_names});
  KernelDef fused = table.get("fused_conv", DeviceKind::kCuda);
  fused.in_place = {};  // a product may be written before the residual is read
  table.replace(DeviceKind::kCuda, std::move(fused));
  add_generated(table, "conv_input_grad", conv_input_grad, library);
  add_generated(table, "conv_weight_grad", conv_weight_grad, library);
}

}  // namespace sluice::cuda
