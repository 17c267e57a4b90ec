// Torch's spelling of convolution, which has a function per number of spatial dims.
#include "graph/ops/convolution.h"
#include "graph/ops/forms.h"
#include "graph/ops/movement.h"
#include "graph/ops/spatial/unbatched.h"

namespace sluice::ops {
namespace {

// Padding per side for "valid" and "same". An uneven rest goes to the end: `x` is padded by that.
Ints named_padding(const std::string& padding, const Shape& weight, const Ints& stride, const Ints& dilation,
                   Value* x) {
  const int dims = static_cast<int>(stride.size());
  SLUICE_CHECK_KIND(kRuntime, weight.rank() == dims + 2, "conv{}d: weight should have {} dimensions: got shape {}",
                    dims, dims + 2, weight.str());
  if (padding == "valid") return Ints(dims, 0);
  SLUICE_CHECK_KIND(kRuntime, padding == "same", "conv{}d: padding is '{}'; must be ints, 'valid' or 'same'", dims,
                    padding);
  SLUICE_CHECK_KIND(kRuntime, stride == Ints(dims, 1),
                    "padding='same' is not supported for strided convolutions: stride is {}; it must be 1",
                    attr_str(stride));
  Ints sides, more(x->rank(), 0);
  for (int i = 0; i < dims; ++i) {
    const int64_t total = dilation[i] * (weight[weight.rank() - dims + i] - 1);
    sides.push_back(total / 2);
    more[x->rank() - dims + i] = total % 2;
  }
  if (more != Ints(x->rank(), 0)) *x = pad(*x, Ints(x->rank(), 0), more);
  return sides;
}

Form functional(const char* doc, std::vector<Overload> overloads) {
  return {.doc = doc, .overloads = std::move(overloads), .method = false};
}

Form convolution(int dims) {
  const std::string name = fmt::format("conv{}d", dims);
  const auto by_ints = [dims, name](const Value& input, const Value& weight, const Value& bias, const Ints& stride,
                                    const Ints& padding, const Ints& dilation, int64_t groups) {
    const Batched batch(input, dims, name);
    return batch.undo(conv(batch.x, weight, bias,
                           {spatial(stride, dims, "stride", name), spatial(padding, dims, "padding", name),
                            spatial(dilation, dims, "dilation", name), groups}));
  };
  const auto by_name = [dims, name](const Value& input, const Value& weight, const Value& bias, const Ints& stride,
                                    const std::string& padding, const Ints& dilation, int64_t groups) {
    Batched batch(input, dims, name);
    const Ints strides = spatial(stride, dims, "stride", name), dilations = spatial(dilation, dims, "dilation", name);
    const Ints sides = named_padding(padding, weight.shape(), strides, dilations, &batch.x);
    return batch.undo(conv(batch.x, weight, bias, {strides, sides, dilations, groups}));
  };
  const std::string head = name + "(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, ";
  Form form = functional(
      "Convolution of (N, C, spatial...) or (C, spatial...) with weight (O, C/groups, kernel...). "
      "torch.conv1d, conv2d, conv3d.",
      {overload(head + "int[1] padding=0, int[1] dilation=1, int groups=1) -> Tensor", by_ints),
       overload(head + "str padding=\"valid\", int[1] dilation=1, int groups=1) -> Tensor", by_name)});
  static const char* const kAliases[] = {"nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d"};
  form.aliases = {kAliases[dims - 1]};
  return form;
}

Form transposed_convolution(int dims) {
  const std::string name = fmt::format("conv_transpose{}d", dims);
  const auto f = [dims, name](const Value& input, const Value& weight, const Value& bias, const Ints& stride,
                              const Ints& padding, const Ints& output_padding, int64_t groups, const Ints& dilation) {
    const Batched batch(input, dims, name);
    return batch.undo(conv_transpose(
        batch.x, weight, bias,
        {spatial(stride, dims, "stride", name), spatial(padding, dims, "padding", name),
         spatial(output_padding, dims, "output_padding", name), spatial(dilation, dims, "dilation", name), groups}));
  };
  Form form =
      functional("The adjoint of convolution, with weight (C, O/groups, kernel...). torch.conv_transpose1d, 2d, 3d.",
                 {overload(name + "(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, "
                                  "int[1] output_padding=0, int groups=1, int[1] dilation=1) -> Tensor",
                           f)});
  static const char* const kAliases[] = {"nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d",
                                         "nn.functional.conv_transpose3d"};
  form.aliases = {kAliases[dims - 1]};
  return form;
}

}  // namespace

std::vector<Form> window_forms() {
  std::vector<Form> forms;
  for (int dims = 1; dims <= 3; ++dims) {
    forms.push_back(convolution(dims));
    forms.push_back(transposed_convolution(dims));
  }
  return forms;
}

}  // namespace sluice::ops
