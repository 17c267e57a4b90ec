#include "kernels/cpu/winograd_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kernels/cpu/support.h"
#include "kernels/cpu/winograd.h"

namespace sluice::cpu {
namespace {

constexpr int kSides[] = {2, 4};

std::string name_of(int side) { return fmt::format("winograd {0}x{0}", side); }

std::optional<Winograd> winograd(int side, ConvRole result, const ConvOperands& o, const ConvGeometry& g,
                                 const ConvEpilogue* epilogue) {
  const auto dense = [](const TensorSpec& spec) {
    return spec.dtype == DType::kFloat32 && spatial_layout(spec) == plan::Layout::kChannelsLast;
  };
  const auto within = [](const Ints& sizes, int64_t least, int64_t most) {
    return std::all_of(sizes.begin(), sizes.end(), [=](int64_t n) { return least <= n && n <= most; });
  };
  const Shape& w = o.w.shape;
  const bool fits = w.rank() == 4 && w[2] == 3 && w[3] == 3 && g.groups == 1 && within(g.stride, 1, 1) &&
                    within(g.dilation, 1, 1) && within(g.padding, 0, 2) && w[0] % Winograd::kPanel == 0 &&
                    w[1] % Winograd::kPanel == 0 && dense(o.x) && dense(o.y) && o.w.dtype == DType::kFloat32 &&
                    numel(o.x.shape) > 0 && numel(o.y.shape) > 0;
  if (!fits || (o.has_bias && o.bias.dtype != DType::kFloat32)) return std::nullopt;
  if (epilogue && epilogue->residual && !dense(epilogue->inputs[ConvEpilogue::kResidual])) return std::nullopt;
  const bool turned = result == ConvRole::kInput;
  const Shape &from = turned ? o.y.shape : o.x.shape, &to = turned ? o.x.shape : o.y.shape;
  const auto before = [&](int axis) { return turned ? 2 - g.padding[axis] : g.padding[axis]; };
  return Winograd{.side = side,
                  .result = result,
                  .images = from[0],
                  .height = from[2],
                  .width = from[3],
                  .channels = from[1],
                  .out_height = to[2],
                  .out_width = to[3],
                  .out_channels = to[1],
                  .top = before(0),
                  .left = before(1)};
}

// Of an output or the gradient of an input.
class WinogradKernel final : public PreparedKernel {
 public:
  WinogradKernel(const Winograd& shape, const plan::KernelQuery& query, bool bias, const ConvEpilogue* epilogue,
                 int threads)
      : shape_(shape), bias_(bias), threads_(threads) {
    WorkspaceLayout layout;
    tiles_ = layout.add(shape.workspace_bytes());
    const auto transform = [shape, threads](const void* w, void* transformed) {
      transform_weights(shape, static_cast<const float*>(w), static_cast<float*>(transformed), threads);
    };
    if (std::find(query.packed.begin(), query.packed.end(), kWeight) != query.packed.end()) {
      const auto pack = [transform](const KernelArgs& args) { transform(args.inputs[0], args.outputs[0]); };
      packings_.push_back({{kWeight, format(), shape.weight_bytes()}, make_kernel(0, pack)});
    } else {
      transformed_ = layout.add(shape.weight_bytes());
    }
    if (epilogue != nullptr && epilogue->any()) epilogue_ = *epilogue;
    if (epilogue_ && epilogue_->norm) rows_ = layout.add(3 * epilogue_->row_bytes());
    workspace_bytes_ = layout.bytes();
  }

  void run(const KernelArgs& args) const override {
    const auto* weights = static_cast<const float*>(args.inputs[kWeight]);
    if (packings_.empty()) {
      auto* const made = reinterpret_cast<float*>(at_offset(args.workspace, transformed_));
      transform_weights(shape_, weights, made, threads_);
      weights = made;
    }
    WinogradFinish finish;
    if (bias_) finish.bias = static_cast<const float*>(args.inputs[ConvEpilogue::kBias]);
    if (epilogue_) {
      finish.relu = epilogue_->relu;
      if (epilogue_->residual) finish.residual = static_cast<const float*>(args.inputs[ConvEpilogue::kResidual]);
      if (epilogue_->norm) {
        auto* const rows = reinterpret_cast<float*>(at_offset(args.workspace, rows_));
        epilogue_->write_rows(args, rows);
        finish.mean = rows, finish.scale = rows + shape_.out_channels, finish.shift = rows + 2 * shape_.out_channels;
      }
    }
    convolve(shape_, static_cast<const float*>(args.inputs[0]), weights, finish, static_cast<float*>(args.outputs[0]),
             reinterpret_cast<float*>(at_offset(args.workspace, tiles_)), threads_);
  }

 private:
  static constexpr int kWeight = 1;
  // The order of transformed weights in words: equal texts, equal orders.
  std::string format() const {
    return fmt::format("{}{} of {} to {} channels, panels of {}", name_of(shape_.side),
                       shape_.result == ConvRole::kInput ? " turned" : "", shape_.channels, shape_.out_channels,
                       Winograd::kPanel);
  }

  const Winograd shape_;
  const bool bias_;
  const int threads_;
  std::optional<ConvEpilogue> epilogue_;
  uint64_t tiles_ = 0, transformed_ = 0, rows_ = 0;
};

}  // namespace

std::vector<std::string> winograd_implementations(ConvRole result, const ConvOperands& operands,
                                                  const ConvGeometry& geometry, const ConvEpilogue* epilogue) {
  std::vector<std::string> names;
  for (const int side : kSides)
    if (winograd(side, result, operands, geometry, epilogue)) names.push_back(name_of(side));
  return names;
}

std::unique_ptr<PreparedKernel> prepare_winograd(std::string_view name, const plan::KernelQuery& query, ConvRole result,
                                                 const ConvOperands& operands, const ConvGeometry& geometry,
                                                 const ConvEpilogue* epilogue, int threads) {
  const auto* const side =
      std::find_if(std::begin(kSides), std::end(kSides), [&](int s) { return name == name_of(s); });
  if (side == std::end(kSides)) return nullptr;
  const std::optional<Winograd> shape = winograd(*side, result, operands, geometry, epilogue);
  if (!shape) return nullptr;
  if (result != ConvRole::kWeight)
    return std::make_unique<WinogradKernel>(*shape, query, operands.has_bias, epilogue, threads);
  return make_kernel(shape->workspace_bytes(), [shape = *shape, threads](const KernelArgs& args) {
    weight_gradient(shape, static_cast<const float*>(args.inputs[1]), static_cast<const float*>(args.inputs[0]),
                    static_cast<float*>(args.outputs[0]), static_cast<float*>(args.workspace), threads);
  });
}

}  // namespace sluice::cpu
