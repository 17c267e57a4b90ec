// Torch's spelling of convolution and pooling, which have a function per number of spatial dims.
#include "graph/ops/convolution.h"
#include "graph/ops/forms.h"
#include "graph/ops/movement.h"
#include "graph/ops/pooling.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

// (N, C, spatial...) of (C, spatial...), and what was done undone.
struct Batched {
  Value x;
  bool added;

  Batched(const Value& input, int dims, const std::string& name) : x(input), added(input.rank() == dims + 1) {
    SLUICE_CHECK(added || input.rank() == dims + 2,
                 "{}: expected {}D (unbatched) or {}D (batched) input: got shape {}; it must have one of these", name,
                 dims + 1, dims + 2, input.shape().str());
    if (added) x = unsqueeze(input, 0);
  }
  Value undo(const Value& y) const { return added ? squeeze(y, Ints{0}) : y; }
};

// One entry for each of `dims` spatial dims.
Ints spatial(const Ints& values, int dims, const char* what, const std::string& name) {
  if (values.size() == 1) return Ints(dims, values[0]);
  SLUICE_CHECK_KIND(kRuntime, static_cast<int>(values.size()) == dims, "{}: {} is {}; must be an int or {} ints", name,
                    what, attr_str(values), dims);
  return values;
}

// Padding per side for "valid" and "same". What is uneven goes to the end: `x` is padded by that.
Ints named_padding(const std::string& padding, const Shape& weight, const Ints& stride, const Ints& dilation,
                   Value* x) {
  const int dims = static_cast<int>(stride.size());
  SLUICE_CHECK_KIND(kRuntime, weight.rank() == dims + 2, "conv{}d: weight should have {} dimensions: got shape {}",
                    dims, dims + 2, weight.str());
  if (padding == "valid") return Ints(dims, 0);
  SLUICE_CHECK(padding == "same", "conv{}d: padding is '{}'; must be ints, 'valid' or 'same'", dims, padding);
  SLUICE_CHECK(stride == Ints(dims, 1),
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

// With return_indices a function gives two results, which is an overload of its own.
void add_max_pool(std::vector<Form>& forms, int dims) {
  const std::string name = fmt::format("max_pool{}d", dims);
  const auto pool = [dims, name](const Value& input, const Ints& kernel, const Ints& stride, const Ints& padding,
                                 const Ints& dilation, bool ceil_mode) -> std::pair<Value, Value> {
    const Batched batch(input, dims, name);
    MaxPoolOptions options;
    options.kernel_size = spatial(kernel, dims, "kernel_size", name);
    options.stride = stride.empty() ? options.kernel_size : spatial(stride, dims, "stride", name);
    options.padding = spatial(padding, dims, "padding", name);
    options.dilation = spatial(dilation, dims, "dilation", name);
    options.ceil_mode = ceil_mode;
    const auto [values, indices] = max_pool_with_indices(batch.x, options);
    return {batch.undo(values), batch.undo(indices)};
  };
  const auto one_or_both = [pool](const Value& input, const Ints& kernel, const std::optional<Ints>& stride,
                                  const Ints& padding, const Ints& dilation, bool ceil_mode,
                                  bool return_indices) -> FormResult {
    auto [values, indices] = pool(input, kernel, stride.value_or(Ints{}), padding, dilation, ceil_mode);
    if (!return_indices) return values;
    return std::vector<Value>{values, indices};
  };
  const std::string tail =
      "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] dilation=1, bool "
      "ceil_mode=False, "
      "bool return_indices=False) -> Tensor";
  forms.push_back(
      functional("Maximum over windows of (N, C, spatial...) or (C, spatial...); with return_indices also "
                 "where it is. F.max_pool1d, 2d, 3d.",
                 {overload("nn.functional." + name + tail, one_or_both)}));
}

Form avg_pool_form(int dims) {
  const std::string name = fmt::format("avg_pool{}d", dims);
  const auto f = [dims, name](const Value& input, const Ints& kernel, const std::optional<Ints>& stride,
                              const Ints& padding, bool ceil_mode, bool count_include_pad,
                              const std::optional<int64_t>& divisor) {
    const Batched batch(input, dims, name);
    AvgPoolOptions options;
    options.kernel_size = spatial(kernel, dims, "kernel_size", name);
    options.stride = stride && !stride->empty() ? spatial(*stride, dims, "stride", name) : options.kernel_size;
    options.padding = spatial(padding, dims, "padding", name);
    options.ceil_mode = ceil_mode, options.count_include_pad = count_include_pad;
    options.divisor_override = divisor.value_or(0);
    SLUICE_CHECK_KIND(kRuntime, divisor != 0, "{}: divisor must be not zero: got 0; None takes the window's size",
                      name);
    return batch.undo(avg_pool(batch.x, options));
  };
  return functional("Mean over windows of (N, C, spatial...) or (C, spatial...). F.avg_pool1d, 2d, 3d.",
                    {overload("nn.functional." + name +
                                  "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool "
                                  "ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
                              f)});
}

using Adaptive = Value (*)(const Value&, const Ints&);

Form adaptive_form(const char* kind, int dims, Adaptive pool, const char* doc) {
  const std::string name = fmt::format("adaptive_{}_pool{}d", kind, dims);
  const auto f = [dims, name, pool](const Value& input, const Ints& size) {
    const Batched batch(input, dims, name);
    return batch.undo(pool(batch.x, spatial(size, dims, "output_size", name)));
  };
  return functional(doc, {overload("nn.functional." + name + "(Tensor input, int?[1] output_size) -> Tensor", f)});
}

}  // namespace

std::vector<Form> window_forms() {
  std::vector<Form> forms;
  for (int dims = 1; dims <= 3; ++dims) {
    forms.push_back(convolution(dims));
    forms.push_back(transposed_convolution(dims));
    add_max_pool(forms, dims);
    forms.push_back(avg_pool_form(dims));
    forms.push_back(adaptive_form("avg", dims, &adaptive_avg_pool,
                                  "Means over windows that give output_size, -1 or None keeping a dim's. "
                                  "F.adaptive_avg_pool1d, 2d, 3d."));
    forms.push_back(adaptive_form("max", dims, &adaptive_max_pool,
                                  "Maxima over windows that give output_size, -1 or None keeping a dim's. "
                                  "F.adaptive_max_pool1d, 2d, 3d."));
  }
  return forms;
}

}  // namespace sluice::ops
