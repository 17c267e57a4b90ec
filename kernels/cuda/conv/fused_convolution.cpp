#include "kernels/cuda/conv/fused_convolution.h"

#include <algorithm>

#include "kernels/cpu/support/support.h"
#include "kernels/cuda/conv/cudnn_convolution.h"
#include "kernels/cuda/spatial.h"

namespace sluice::cuda {
namespace {

constexpr uint64_t kArrayAlignment = 256;

// Two kernels, one after the other, with the same operands and workspace.
class InTurn final : public PreparedKernel {
 public:
  InTurn(std::unique_ptr<PreparedKernel> first, std::unique_ptr<PreparedKernel> second)
      : first_(std::move(first)), second_(std::move(second)) {
    workspace_bytes_ = std::max(first_->workspace_bytes(), second_->workspace_bytes());
    held_bytes_ = first_->held_bytes() + second_->held_bytes();
    repeatable_ = true;
  }
  const char* library() const override { return "cuDNN"; }
  void run(const KernelArgs& args) const override {
    first_->run(args);
    second_->run(args);
  }

 private:
  const std::unique_ptr<PreparedKernel> first_, second_;
};

Writer begin(const plan::KernelQuery& query) {
  const TensorSpec& y = query.outputs[0];
  Writer writer(query, ConvTail::kInputs);
  writer.compute(y.dtype);
  writer.constant("kChannels", y.shape[1]);
  writer.number("kEps", ConvTail(query).eps);
  return writer;
}

std::unique_ptr<PreparedKernel> coefficients(const plan::KernelQuery& query) {
  const ConvCoefficients at(query);
  const auto array = [](int64_t begin) { return fmt::format("((C*)((char*)work + {}))", begin); };
  const std::string body = "    const C scale = " + channel_operand(query, ConvTail::kScale, "(C)1", "i") +
                           " / sqrt((C)load(in4[i]) + kEps);\n    " + array(at.scale) + "[i] = scale;\n    " +
                           array(at.shift) + "[i] = (" + channel_operand(query, ConvTail::kBias, "(C)0", "i") +
                           " - (C)load(in3[i])) * scale + " + channel_operand(query, ConvTail::kShift, "(C)0", "i") +
                           ";\n";
  return std::make_unique<GeneratedKernel>(
      query, Generated{{begin(query).each("coefficients", query.outputs[0].shape[1], body)}, at.bytes});
}

std::unique_ptr<PreparedKernel> pass_over_product(const plan::KernelQuery& query) {
  const TensorSpec& y = query.outputs[0];
  Writer writer = begin(query);
  writer.add(row_spot(y.shape) + place_function("y_at", y));
  if (ConvTail(query).residual) writer.add(place_function("r_at", query.inputs[ConvTail::kResidual]));
  return std::make_unique<GeneratedKernel>(
      query, Generated{{writer.each("epilogue", numel(y.shape),
                                    in_memory_order(y) +
                                        "    Out0* const at = out0 + y_at(c, row);\n"
                                        "    C v = load(*at);\n" +
                                        tail_text(query, "r_at(c, row)") + "    store(at, v);\n")}});
}

// The convolution alone, with the same first operands.
plan::KernelQuery product_of(plan::KernelQuery query) {
  query.op = "conv";
  query.inputs.resize(ConvTail::kBias);
  std::erase_if(query.attrs, [](const auto& attr) { return attr.first == "eps" || attr.first == "activation"; });
  return query;
}

}  // namespace

std::string tail_text(const plan::KernelQuery& query, const std::string& at) {
  const ConvTail tail(query);
  std::string text;
  if (tail.bias) text += "    v += (C)load(in2[c]);\n";
  if (tail.norm) {
    text += "    v = (v - (C)load(in3[c])) * (" + channel_operand(query, ConvTail::kScale, "(C)1") +
            " / sqrt((C)load(in4[c]) + kEps)) + " + channel_operand(query, ConvTail::kShift, "(C)0") + ";\n";
  }
  if (tail.residual) text += "    v += (C)load(in7[" + at + "]);\n";
  if (tail.relu) text += "    if (v < 0) v = 0;\n";
  return text;
}

ConvCoefficients::ConvCoefficients(const plan::KernelQuery& query) {
  const TensorSpec& y = query.outputs[0];
  const uint64_t array = align_up(static_cast<uint64_t>(y.shape[1]) * compute_size(y.dtype), kArrayAlignment);
  shift = static_cast<int64_t>(array);
  bytes = 2 * array;
}

std::unique_ptr<PreparedKernel> cudnn_fused_convolution(const plan::KernelQuery& query) {
  std::unique_ptr<PreparedKernel> kernel = cudnn_convolution(query);
  if (kernel != nullptr) {
    if (!ConvTail(query).norm) return kernel;
    return std::make_unique<InTurn>(coefficients(query), std::move(kernel));
  }
  kernel = cudnn_convolution(product_of(query));
  if (kernel == nullptr) return nullptr;
  return std::make_unique<InTurn>(std::move(kernel), pass_over_product(query));
}

}  // namespace sluice::cuda
