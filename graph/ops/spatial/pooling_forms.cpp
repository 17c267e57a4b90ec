// Torch's spelling of pooling, which has a function per number of spatial dims.
#include <algorithm>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/forms.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/pooling.h"
#include "graph/ops/spatial/unbatched.h"

namespace sluice::ops {
namespace {

Form functional(const char* doc, Overload overload) {
  return {.doc = doc, .overloads = {std::move(overload)}, .method = false};
}

// With return_indices a function gives two results, which is an overload of its own.
void add_max_pool(std::vector<Form>& forms, int dims) {
  const std::string name = fmt::format("max_pool{}d", dims);
  const auto one_or_both = [dims, name](const Value& input, const Ints& kernel, const std::optional<Ints>& stride,
                                        const Ints& padding, const Ints& dilation, bool ceil_mode,
                                        bool return_indices) -> FormResult {
    const Batched batch(input, dims, name);
    MaxPoolOptions options;
    options.kernel_size = spatial(kernel, dims, "kernel_size", name);
    options.stride = stride && !stride->empty() ? spatial(*stride, dims, "stride", name) : options.kernel_size;
    options.padding = spatial(padding, dims, "padding", name);
    options.dilation = spatial(dilation, dims, "dilation", name);
    options.ceil_mode = ceil_mode;
    if (!return_indices) return batch.undo(max_pool(batch.x, options));
    const auto [values, indices] = max_pool_with_indices(batch.x, options);
    return std::vector<Value>{batch.undo(values), batch.undo(indices)};
  };
  const std::string tail =
      "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] dilation=1, bool "
      "ceil_mode=False, "
      "bool return_indices=False) -> Tensor";
  forms.push_back(
      functional("Maximum over windows of (N, C, spatial...) or (C, spatial...); with return_indices also "
                 "where it is. F.max_pool1d, 2d, 3d.",
                 overload("nn.functional." + name + tail, one_or_both)));
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
  const char* const doc = "Mean over windows of (N, C, spatial...) or (C, spatial...). F.avg_pool1d, 2d, 3d.";
  const std::string signature = "nn.functional." + name +
                                "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool "
                                "ceil_mode=False, bool count_include_pad=True";
  if (dims > 1) return functional(doc, overload(signature + ", int? divisor_override=None) -> Tensor", f));
  const auto without_divisor = [f](const Value& input, const Ints& kernel, const std::optional<Ints>& stride,
                                   const Ints& padding, bool ceil_mode, bool count_include_pad) {
    return f(input, kernel, stride, padding, ceil_mode, count_include_pad, std::nullopt);
  };
  return functional(doc, overload(signature + ") -> Tensor", without_divisor));
}

Form adaptive_avg_form(int dims) {
  const std::string name = fmt::format("adaptive_avg_pool{}d", dims);
  const auto f = [dims, name](const Value& input, const Ints& size) {
    const Batched batch(input, dims, name);
    return batch.undo(adaptive_avg_pool(batch.x, spatial(size, dims, "output_size", name)));
  };
  return functional("Means over windows that give output_size, None keeping a dim's. F.adaptive_avg_pool1d, 2d, 3d.",
                    overload("nn.functional." + name + "(Tensor input, int?[1] output_size) -> Tensor", f));
}

Form adaptive_max_form(int dims) {
  const std::string name = fmt::format("adaptive_max_pool{}d", dims);
  const auto f = [dims, name](const Value& input, const Ints& size, bool return_indices) -> FormResult {
    const Batched batch(input, dims, name);
    const Ints sizes = spatial(size, dims, "output_size", name);
    if (!return_indices) return batch.undo(adaptive_max_pool(batch.x, sizes));
    const auto [values, indices] = adaptive_max_pool_with_indices(batch.x, sizes);
    return std::vector<Value>{batch.undo(values), batch.undo(indices)};
  };
  return functional(
      "Maxima over windows that give output_size, None keeping a dim's; with return_indices also where "
      "they are. F.adaptive_max_pool1d, 2d, 3d.",
      overload("nn.functional." + name + "(Tensor input, int?[1] output_size, bool return_indices=False) -> Tensor",
               f));
}

// The spatial size before pooling: what windows make of it least, or as asked within a stride of that.
Ints unpooled_size(const std::string& name, const Shape& pooled, const Ints& kernel, const Ints& stride,
                   const Ints& padding, const std::optional<Ints>& asked) {
  const int dims = static_cast<int>(kernel.size());
  Ints size = asked.value_or(Ints{});
  if (static_cast<int>(size.size()) == dims + 2) size.erase(size.begin(), size.begin() + 2);
  SLUICE_CHECK(!asked || static_cast<int>(size.size()) == dims,
               "{}: output_size should be a sequence containing {} or {} elements, but it has a length of '{}'", name,
               dims, dims + 2, size.size());
  for (int d = 0; d < dims; ++d) {
    const int64_t least = (pooled[2 + d] - 1) * stride[d] + kernel[d] - 2 * padding[d];
    if (!asked)
      size.push_back(least);
    else
      SLUICE_CHECK(least - stride[d] < size[d] && size[d] < least + stride[d],
                   "{}: invalid output_size \"{}\" (dim {} must be between {} and {})", name, attr_str(size), d,
                   least - stride[d], least + stride[d]);
  }
  return size;
}

Form unpool_form(int dims) {
  const std::string name = fmt::format("max_unpool{}d", dims);
  const auto f = [dims, name](const Value& input, const Value& indices, const Ints& kernel,
                              const std::optional<Ints>& stride, const Ints& padding,
                              const std::optional<Ints>& output_size) {
    SLUICE_CHECK_KIND(kRuntime, indices.shape() == input.shape() && indices.dtype() == DType::kInt64,
                      "{}: Expected shape of indices to be same as that of the input tensor {}, and int64, but got {}",
                      name, input.shape().str(), indices.type().str());
    const Batched values(input, dims, name), at(indices, dims, name);
    const Ints window = spatial(kernel, dims, "kernel_size", name);
    const Ints steps = stride && !stride->empty() ? spatial(*stride, dims, "stride", name) : window;
    const Ints size =
        unpooled_size(name, values.x.shape(), window, steps, spatial(padding, dims, "padding", name), output_size);
    Shape shape = {values.x.shape()[0], values.x.shape()[1]};
    const Ints flat = {shape[0], shape[1], numel(values.x.shape()) / std::max<int64_t>(1, shape[0] * shape[1])};
    int64_t area = 1;
    for (int64_t d : size) {
      shape.push_back(d);
      area *= d;
    }
    const Value empty = zeros({shape[0], shape[1], area}, input.dtype());
    return values.undo(reshape(scatter(empty, reshape(at.x, flat), reshape(values.x, flat), 2), shape.vec()));
  };
  return functional("Values where max pooling took them from, zeros elsewhere. F.max_unpool1d, 2d, 3d.",
                    overload("nn.functional." + name +
                                 "(Tensor input, Tensor indices, int[1] kernel_size, int[1]? stride=None, int[1] "
                                 "padding=0, int[]? output_size=None) -> Tensor",
                             f));
}

Form lp_pool_form(int dims) {
  const std::string name = fmt::format("lp_pool{}d", dims);
  const auto f = [dims, name](const Value& input, double p, const Ints& kernel, const std::optional<Ints>& stride,
                              bool ceil_mode) {
    const Batched batch(input, dims, name);
    const Ints window = spatial(kernel, dims, "kernel_size", name);
    const Ints steps = stride && !stride->empty() ? spatial(*stride, dims, "stride", name) : window;
    if (std::isinf(p)) {
      const Value size = abs(batch.x);
      MaxPoolOptions options;
      options.kernel_size = window, options.stride = steps, options.ceil_mode = ceil_mode;
      return batch.undo(p > 0 ? max_pool(size, options) : neg(max_pool(neg(size), options)));
    }
    AvgPoolOptions options;
    options.kernel_size = window, options.stride = steps, options.ceil_mode = ceil_mode;
    double count = 1;
    for (int64_t k : window) count *= static_cast<double>(k);
    const Value powers = avg_pool(pow(batch.x, p), options);
    return batch.undo(pow(mul(mul(sign(powers), relu(abs(powers))), count), 1 / p));
  };
  return functional("The p-th root of the sum of p-th powers over windows. F.lp_pool1d, 2d, 3d.",
                    overload("nn.functional." + name +
                                 "(Tensor input, float norm_type, int[1] kernel_size, int[1]? stride=None, bool "
                                 "ceil_mode=False) -> Tensor",
                             f));
}

}  // namespace

std::vector<Form> pooling_forms() {
  std::vector<Form> forms;
  for (int dims = 1; dims <= 3; ++dims) {
    add_max_pool(forms, dims);
    forms.push_back(avg_pool_form(dims));
    forms.push_back(adaptive_avg_form(dims));
    forms.push_back(adaptive_max_form(dims));
    forms.push_back(unpool_form(dims));
    forms.push_back(lp_pool_form(dims));
  }
  return forms;
}

}  // namespace sluice::ops
