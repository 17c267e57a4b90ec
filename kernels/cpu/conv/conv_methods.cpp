#include "kernels/cpu/conv/conv_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kernels/cpu/conv/panel_conv.h"
#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr const char* kPanels = "panels";
constexpr int kSides[] = {2, 4};
std::string winograd_name(int side) { return fmt::format("winograd {0}x{0}", side); }

bool within(const Ints& sizes, int64_t least, int64_t most) {
  return std::all_of(sizes.begin(), sizes.end(), [=](int64_t n) { return least <= n && n <= most; });
}

// All of the methods need this.
bool dense_images(const ConvOperands& o, const ConvGeometry& g, const ConvEpilogue* epilogue) {
  const auto dense = [](const TensorSpec& spec) {
    return spec.dtype == DType::kFloat32 && numel(spec.shape) > 0 &&
           spatial_layout(spec) == plan::Layout::kChannelsLast;
  };
  return o.w.shape.rank() == 4 && o.w.dtype == DType::kFloat32 && numel(o.w.shape) > 0 && g.groups == 1 &&
         within(g.dilation, 1, 1) && dense(o.x) && dense(o.y) && !(o.has_bias && o.bias.dtype != DType::kFloat32) &&
         !(epilogue && epilogue->residual && !dense(epilogue->inputs[ConvEpilogue::kResidual]));
}

ConvImages images_of(const Shape& from, const Shape& to, int64_t top, int64_t left) {
  return {.images = from[0],
          .height = from[2],
          .width = from[3],
          .channels = from[1],
          .out_height = to[2],
          .out_width = to[3],
          .out_channels = to[1],
          .top = top,
          .left = left};
}

std::optional<Winograd> winograd(int side, ConvRole result, const ConvOperands& o, const ConvGeometry& g,
                                 const ConvEpilogue* epilogue) {
  const Shape& w = o.w.shape;
  if (!dense_images(o, g, epilogue) || w[2] != 3 || w[3] != 3 || !within(g.stride, 1, 1) || !within(g.padding, 0, 2) ||
      w[0] % kConvPanel != 0 || w[1] % kConvPanel != 0)
    return std::nullopt;
  const ConvImages images = result == ConvRole::kInput
                                ? images_of(o.y.shape, o.x.shape, 2 - g.padding[0], 2 - g.padding[1])
                                : images_of(o.x.shape, o.y.shape, g.padding[0], g.padding[1]);
  return Winograd{images, side, result};
}

std::optional<PanelConv> panels(ConvRole result, const ConvOperands& o, const ConvGeometry& g,
                                const ConvEpilogue* epilogue) {
  const Shape &x = o.x.shape, &w = o.w.shape, &y = o.y.shape;
  if (result != ConvRole::kOutput || !dense_images(o, g, epilogue) || w[0] % kConvPanel != 0) return std::nullopt;
  const auto behind = [&](int axis) {  // what remains of x behind the last window is not padded
    const int64_t reach = (y[2 + axis] - 1) * g.stride[axis] + w[2 + axis];
    return std::max<int64_t>(0, reach - g.padding[axis] - x[2 + axis]);
  };
  PanelConv c{images_of(x, y, g.padding[0], g.padding[1])};
  c.window_height = w[2], c.window_width = w[3];
  c.down = g.stride[0], c.across = g.stride[1];
  c.bottom = behind(0), c.right = behind(1);
  if (w[2] == 1 && w[3] == 1 && within(g.stride, 1, 1) && !c.padded()) {  // all pixels are a line
    c.width = c.out_width = c.images * c.height * c.width;
    c.images = c.height = c.out_height = 1;
  }
  return c;
}

// `Method`: Winograd or PanelConv. Computes a result, or the gradient of an input.
template <class Method>
class MethodKernel final : public PreparedKernel {
 public:
  // format: of packed weights in words: equal texts, equal orders.
  MethodKernel(const Method& method, std::string format, const plan::KernelQuery& query, bool bias,
               const ConvEpilogue* epilogue, int threads)
      : method_(method), bias_(bias), threads_(threads) {
    WorkspaceLayout layout;
    inner_ = layout.add(method.workspace_bytes());
    if (std::find(query.packed.begin(), query.packed.end(), kWeight) != query.packed.end()) {
      const auto pack = [method, threads](const KernelArgs& args) {
        pack_weights(method, static_cast<const float*>(args.inputs[0]), static_cast<float*>(args.outputs[0]), threads);
      };
      packings_.push_back({{kWeight, std::move(format), method.weight_bytes()}, make_kernel(0, pack)});
    } else {
      packed_ = layout.add(method.weight_bytes());
    }
    if (epilogue != nullptr && epilogue->any()) epilogue_ = *epilogue;
    if (epilogue_ && epilogue_->norm) rows_ = layout.add(3 * epilogue_->row_bytes());
    workspace_bytes_ = layout.bytes();
  }

  void run(const KernelArgs& args) const override {
    const auto at = [&](uint64_t offset) {
      return args.workspace ? reinterpret_cast<float*>(at_offset(args.workspace, offset)) : nullptr;
    };
    const auto* weights = static_cast<const float*>(args.inputs[kWeight]);
    if (packings_.empty()) {
      pack_weights(method_, weights, at(packed_), threads_);
      weights = at(packed_);
    }
    ConvFinish finish;
    if (bias_) finish.bias = static_cast<const float*>(args.inputs[ConvEpilogue::kBias]);
    if (epilogue_) {
      finish.relu = epilogue_->relu;
      if (epilogue_->residual) finish.residual = static_cast<const float*>(args.inputs[ConvEpilogue::kResidual]);
      if (epilogue_->norm) {
        epilogue_->write_rows(args, at(rows_));
        finish.mean = at(rows_);
        finish.scale = finish.mean + epilogue_->y.shape[1];
        finish.shift = finish.scale + epilogue_->y.shape[1];
      }
    }
    convolve(method_, static_cast<const float*>(args.inputs[0]), weights, finish, static_cast<float*>(args.outputs[0]),
             at(inner_), threads_);
  }

 private:
  static constexpr int kWeight = 1;
  const Method method_;
  const bool bias_;
  const int threads_;
  std::optional<ConvEpilogue> epilogue_;
  uint64_t inner_ = 0, packed_ = 0, rows_ = 0;
};

}  // namespace

std::vector<std::string> conv_methods(ConvRole result, const ConvOperands& operands, const ConvGeometry& geometry,
                                      const ConvEpilogue* epilogue) {
  std::vector<std::string> names;
  if (panels(result, operands, geometry, epilogue)) names.emplace_back(kPanels);
  for (const int side : kSides)
    if (winograd(side, result, operands, geometry, epilogue)) names.push_back(winograd_name(side));
  return names;
}

std::unique_ptr<PreparedKernel> prepare_conv_method(std::string_view name, const plan::KernelQuery& query,
                                                    ConvRole result, const ConvOperands& operands,
                                                    const ConvGeometry& geometry, const ConvEpilogue* epilogue,
                                                    int threads) {
  const Shape& w = operands.w.shape;
  const auto make = [&](const auto& method, std::string format) {
    return std::make_unique<MethodKernel<std::decay_t<decltype(method)>>>(method, std::move(format), query,
                                                                          operands.has_bias, epilogue, threads);
  };
  if (name == kPanels) {
    const std::optional<PanelConv> method = panels(result, operands, geometry, epilogue);
    if (!method) return nullptr;
    return make(*method, fmt::format("{} of {} windows of {}", kPanels, kConvPanel, w.str()));
  }
  const auto* const side =
      std::find_if(std::begin(kSides), std::end(kSides), [&](int s) { return name == winograd_name(s); });
  if (side == std::end(kSides)) return nullptr;
  const std::optional<Winograd> method = winograd(*side, result, operands, geometry, epilogue);
  if (!method) return nullptr;
  if (result != ConvRole::kWeight) {
    return make(*method, fmt::format("{}{} of windows of {}, panels of {}", winograd_name(*side),
                                     result == ConvRole::kInput ? " turned" : "", w.str(), kConvPanel));
  }
  return make_kernel(method->workspace_bytes(), [method = *method, threads](const KernelArgs& args) {
    weight_gradient(method, static_cast<const float*>(args.inputs[1]), static_cast<const float*>(args.inputs[0]),
                    static_cast<float*>(args.outputs[0]), static_cast<float*>(args.workspace), threads);
  });
}

}  // namespace sluice::cpu
