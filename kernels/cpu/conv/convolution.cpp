// conv, fused_conv, conv_input_grad and conv_weight_grad. oneDNN computes channels-last with weights packed as it
// likes; operands that lie otherwise are reordered in the workspace, so contiguous and channels-last operands give
// equal bits.
#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/cpu/conv/conv_epilogue.h"
#include "kernels/cpu/conv/conv_loops.h"
#include "kernels/cpu/conv/conv_methods.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn/library_defects.h"
#include "kernels/cpu/onednn/onednn_conv.h"
#include "kernels/cpu/onednn/relu_in_place.h"
#include "kernels/cpu/support/support.h"
#include "kernels/guarded_kernel.h"
#include "plan/query.h"

namespace sluice::cpu {
namespace {

using onednn::Desc;
using onednn::Implementation;
using plan::KernelQuery;
using plan::Layout;

// With the threads that are worth having.
PrepareContext worth_having(PrepareContext context, const KernelQuery& q, const ConvOperands& o) {
  const double products = static_cast<double>(numel(o.y.shape)) * static_cast<double>(numel(o.w.shape)) /
                          static_cast<double>(std::max<int64_t>(o.w.shape[0], 1));
  double bytes = 0;
  for (const auto* operands : {&q.inputs, &q.outputs})
    for (const TensorSpec& spec : *operands) bytes += static_cast<double>(spec.extent_bytes());
  context.threads = threads_for_product(context, 2 * products, bytes);
  return context;
}

// The work that follows a convolution, done by oneDNN or in a pass of its own. In the workspace: the rows of
// coefficients, and the product where the result's place has the residual.
struct Finish {
  std::optional<ConvEpilogue> epilogue;
  ConvEpilogue::Pass pass;                    // null: oneDNN's
  std::unique_ptr<onednn::Primitive> add_to;  // brings the residual to where oneDNN adds to it
  uint64_t rows = 0, product = 0;
  bool in_blocks = false;  // the product, which then never lies where the result does
  int threads = 1;
};

// Arguments in the order: two inputs, output, bias, the epilogue's rows.
class ConvKernel final : public PreparedKernel, public OfImplementation {
 public:
  ConvKernel(std::unique_ptr<onednn::Primitive> primitive, Port a, Port b, Port out, bool bias, Ports& ports,
             Finish finish = {})
      : primitive_(std::move(primitive)),
        a_(std::move(a)),
        b_(std::move(b)),
        out_(std::move(out)),
        bias_(bias),
        finish_(std::move(finish)),
        scratch_(ports.scratch(primitive_->scratchpad_bytes())) {
    workspace_bytes_ = ports.bytes();
    packings_ = ports.take_packings();
    held_bytes_ = packings_.size() * onednn::Primitive::kHeldBytes;
    for (const bool made :
         {true, a_.reorder != nullptr, b_.reorder != nullptr, out_.reorder != nullptr, finish_.add_to != nullptr})
      held_bytes_ += made ? onednn::Primitive::kHeldBytes : 0;
  }

  std::string implementation() const override { return primitive_->implementation(); }

  void run(const KernelArgs& args) const override {
    void* a = a_.inner(args.inputs[0], args.workspace);
    void* b = b_.inner(args.inputs[1], args.workspace);
    void* out = out_.inner(args.outputs[0], args.workspace);
    void* scratch = args.workspace ? at_offset(args.workspace, scratch_) : nullptr;
    if (a_.reorder) a_.reorder->run({args.inputs[0], a, scratch});
    if (b_.reorder) b_.reorder->run({args.inputs[1], b, scratch});
    std::array<const void*, 8> pointers = {a, b, out};
    size_t count = 3;
    if (bias_) pointers[count++] = args.inputs[2];
    std::byte* const rows = args.workspace ? at_offset(args.workspace, finish_.rows) : nullptr;
    const void* residual = nullptr;
    if (finish_.epilogue) {
      if (finish_.epilogue->norm) finish_.epilogue->write_rows(args, rows);
      if (finish_.epilogue->residual) residual = args.inputs[ConvEpilogue::kResidual];
      if (finish_.epilogue->norm && !finish_.pass)
        for (int i = 0; i < 3; ++i) pointers[count++] = rows + i * finish_.epilogue->row_bytes();
      if (finish_.add_to && residual != out) finish_.add_to->run({residual, out, scratch});
      if (finish_.pass && (finish_.in_blocks || residual == out))
        pointers[2] = at_offset(args.workspace, finish_.product);
    }
    pointers[count++] = scratch;
    primitive_->run(std::span<const void* const>(pointers.data(), count));
    if (finish_.pass) {
      finish_.pass(pointers[2], out, residual, rows);
    } else if (finish_.epilogue && finish_.epilogue->relu) {
      const TensorSpec& y = finish_.epilogue->y;
      relu_in_place(y.dtype, out, numel(y.shape), finish_.threads);
    }
    if (out_.reorder) out_.reorder->run({out, args.outputs[0], scratch});
  }

 private:
  std::unique_ptr<onednn::Primitive> primitive_;
  Port a_, b_, out_;
  bool bias_;
  Finish finish_;
  uint64_t scratch_;
};

// Layouts of one convolution: as given, and as requested of oneDNN.
struct Layouts {
  Desc x, w, y, bias;                 // given
  Desc wanted_x, wanted_w, wanted_y;  // requested; the weight's is free
  onednn::ConvGeometry geometry;
};
// Which of its implementations a convolution is to be: "NAME", of ours or of oneDNN's, or "blocked NAME", which
// computes on operands of blocks that oneDNN chooses, and reorders them before and after. Its Winograd's have it in
// their names, and are blocked.
constexpr std::string_view kBlocked = "blocked ", kWinograd = "wino";
struct Choice {
  bool blocked = false;
  std::string name;

  Implementation implementation() const {
    return {.name = name, .winograd = blocked && name.find(kWinograd) != std::string::npos};
  }
};
Choice choice_of(const KernelQuery& q) {
  const auto name = plan::beside<std::string>(q.attrs, plan::kImplementation, "");
  const bool blocked = name.starts_with(kBlocked);
  return {blocked, blocked ? name.substr(kBlocked.size()) : name};
}

// The dtype in which oneDNN computes `result`.
DType computed_dtype(ConvRole result, const ConvOperands& o, const ConvGeometry& g) {
  return needs(Instead::kFloat32, result, o, g) ? DType::kFloat32 : o.x.dtype;
}

Layouts layouts_of(ConvRole result, const ConvOperands& o, const ConvGeometry& g, const char* op,
                   bool blocked = false) {
  const Shape w = weight_shape(o.w.shape, g.groups);
  const DType dtype = computed_dtype(result, o, g);
  const auto channels_last = [&](const Shape& s) { return onednn::desc(dtype, s, channels_last_strides(s)); };
  Layouts l;
  l.x = activation_desc(o.x, is_channels_last(o.x, op));
  l.geometry = onednn_geometry(g, o);
  Shape x = o.x.shape;
  if (needs(Instead::kUnitStride, result, o, g)) {
    Strides read = is_channels_last(o.x, op) ? channels_last_strides(x) : contiguous_strides(x);
    for (size_t d = 0; d < g.stride.size(); ++d) {
      const int axis = 2 + static_cast<int>(d);
      read[axis] *= g.stride[d];
      x[axis] = o.y.shape[axis];
      l.geometry.strides[d] = 1;
      l.geometry.padding_high[d] = 0;
    }
    l.x = onednn::desc(o.x.dtype, x, read);
  }
  l.wanted_x = channels_last(x);
  l.y = activation_desc(o.y, is_channels_last(o.y, op));
  l.wanted_y = channels_last(o.y.shape);
  l.w = onednn::desc(o.w.dtype, w, contiguous_strides(w));
  l.wanted_w = onednn::any_desc(dtype, w);
  if (blocked) {
    l.wanted_x = onednn::any_desc(dtype, x);
    l.wanted_y = onednn::any_desc(dtype, o.y.shape);
  }
  if (o.has_bias) l.bias = onednn::desc(o.bias.dtype, o.bias.shape, contiguous_strides(o.bias.shape));
  return l;
}

bool use_onednn(ConvRole result, const ConvOperands& o, const ConvGeometry& g) {
  const bool empty = numel(o.x.shape) == 0 || numel(o.w.shape) == 0 || numel(o.y.shape) == 0;
  return onednn::supports(o.x.dtype) && !empty && !needs(Instead::kLoops, result, o, g);
}

// The loops work on any dtype and on contiguous or channels-last operands alike.
std::unique_ptr<PreparedKernel> prepare_loops(ConvRole result, const ConvOperands& o, const ConvGeometry& g,
                                              const PrepareContext& context, const ConvEpilogue* epilogue) {
  auto loops = conv_loops(result, o.x, o.w, o.y, o.has_bias ? &o.bias : nullptr, g, context.threads);
  if (epilogue == nullptr || !epilogue->any()) return make_kernel(0, std::move(loops));
  WorkspaceLayout workspace;
  const uint64_t rows = workspace.add(epilogue->norm ? 3 * epilogue->row_bytes() : 0);
  const uint64_t kept = workspace.add(epilogue->residual ? o.y.extent_bytes() : 0);
  using Product = ConvEpilogue::Product;
  const Product lies = is_channels_last(o.y, "fused_conv") ? Product::kChannelsLast : Product::kContiguous;
  return make_kernel(workspace.bytes(), [=, loops = std::move(loops), finish = epilogue->pass(lies, context.threads),
                                         e = *epilogue](const KernelArgs& args) {
    const void* residual = e.residual ? args.inputs[ConvEpilogue::kResidual] : nullptr;
    if (residual != nullptr && residual == args.outputs[0])  // which the loops overwrite
      residual = std::memcpy(at_offset(args.workspace, kept), residual, e.y.extent_bytes());
    loops(args);
    void* const coefficients = e.norm ? at_offset(args.workspace, rows) : nullptr;
    if (e.norm) e.write_rows(args, coefficients);
    finish(args.outputs[0], args.outputs[0], residual, coefficients);
  });
}

bool fits(const PreparedKernel& kernel, const KernelQuery& q) {
  return kernel.workspace_bytes() <= plan::workspace_limit(q.attrs);
}

// The method of ours that is asked for; else what oneDNN makes of it, which is the usual where this machine has no
// Winograd of oneDNN's that is asked for; the loops, which need no workspace, where that cannot be or needs more than
// is allowed.
using Make = std::function<std::unique_ptr<PreparedKernel>(const Choice& choice)>;
std::unique_ptr<PreparedKernel> prepare_within_limit(const KernelQuery& q, ConvRole result, const ConvOperands& o,
                                                     const ConvGeometry& g, const PrepareContext& context,
                                                     const Make& make, const ConvEpilogue* epilogue = nullptr) {
  const Choice choice = choice_of(q);
  auto method = prepare_conv_method(choice.name, q, result, o, g, epilogue, context.threads);
  if (method && fits(*method, q)) return method;
  if (use_onednn(result, o, g)) {
    onednn::ThreadScope scope(context.threads);
    const auto chosen = [&] {
      try {
        return make(choice);
      } catch (const dnnl::error&) {
        if (!choice.implementation().winograd) throw;
        return make({});
      }
    };
    std::unique_ptr<PreparedKernel> kernel = onednn::translate(q.op.c_str(), chosen);
    if (fits(*kernel, q)) return kernel;
  }
  return prepare_loops(result, o, g, context, epilogue);
}

// How oneDNN computes each of the ops, for operands that lie so.
ConvOperands forward_operands(const KernelQuery& q) {
  ConvOperands o{q.inputs[0], q.inputs[1], q.outputs[0], {}, has_operand(q.inputs, 2)};
  if (o.has_bias) o.bias = q.inputs[2];
  return o;
}
auto forward_pd(const ConvOperands& o, const Layouts& l, const dnnl::post_ops& post_ops, const Implementation& chosen) {
  return onednn::conv_pd(l.wanted_x, l.wanted_w, o.has_bias ? &l.bias : nullptr, l.wanted_y, l.geometry, post_ops,
                         chosen);
}
// Whether oneDNN does what `epilogue` says to its result, as fast as a pass of ours would, and right.
bool finishes(const ConvOperands& o, const ConvGeometry& g, const Layouts& l, const ConvEpilogue& epilogue,
              const Implementation& chosen) {
  if (epilogue.residual && needs(Instead::kOwnSum, ConvRole::kOutput, o, g)) return false;
  return !epilogue.norm || onednn::finishes_rows(forward_pd(o, l, epilogue.post_ops(), chosen));
}
ConvOperands input_grad_operands(const KernelQuery& q) { return {q.outputs[0], q.inputs[1], q.inputs[0], {}, false}; }
auto input_grad_pd(const Layouts& l, const Implementation& chosen) {
  return onednn::conv_input_grad_pd(l.wanted_x, l.wanted_w, l.wanted_y, l.geometry, chosen);
}
ConvOperands weight_grad_operands(const KernelQuery& q) { return {q.inputs[1], q.outputs[0], q.inputs[0], {}, false}; }
auto weight_grad_pd(const Layouts& l, const Implementation& chosen) {
  return onednn::conv_weight_grad_pd(l.wanted_x, l.wanted_w, l.wanted_y, l.geometry, chosen);
}

// `describe` has oneDNN describe what the op computes, for such layouts. Blocks only where nothing else is done with
// the result, which is then in their order.
template <class Describe>
std::vector<std::string> all_implementations(const KernelQuery& q, ConvRole result, const ConvOperands& o,
                                             const PrepareContext& context, const ConvEpilogue* epilogue,
                                             Describe describe) {
  const ConvGeometry g = conv_geometry(q);
  if (!use_onednn(result, o, g)) return {};
  const onednn::ThreadScope scope(worth_having(context, q, o).threads);
  return onednn::translate(q.op.c_str(), [&] {
    std::vector<std::string> names, blocked;
    describe(layouts_of(result, o, g, q.op.c_str()), Implementation{.all = &names});
    const Layouts in_blocks = layouts_of(result, o, g, q.op.c_str(), true);
    if (epilogue == nullptr || !epilogue->any()) describe(in_blocks, Implementation{.all = &blocked});
    try {
      describe(in_blocks, Implementation{.all = &blocked, .winograd = true});
    } catch (const dnnl::error&) {  // there are none
    }
    for (const std::string& name : blocked) names.push_back(std::string(kBlocked) + name);
    for (const std::string& name : conv_methods(result, o, g, epilogue))
      if (fits(*prepare_conv_method(name, q, result, o, g, epilogue, context.threads), q)) names.push_back(name);
    return names;
  });
}

std::vector<std::string> conv_implementations(const KernelQuery& q, const PrepareContext& context) {
  const ConvOperands o = forward_operands(q);
  const ConvEpilogue epilogue(q);
  const auto describe = [&](const Layouts& l, const Implementation& all) {
    const bool plain = all.winograd || !finishes(o, conv_geometry(q), l, epilogue, {});
    forward_pd(o, l, plain ? dnnl::post_ops() : epilogue.post_ops(), all);
  };
  return all_implementations(q, ConvRole::kOutput, o, context, &epilogue, describe);
}
std::vector<std::string> input_grad_implementations(const KernelQuery& q, const PrepareContext& context) {
  return all_implementations(q, ConvRole::kInput, input_grad_operands(q), context, nullptr, input_grad_pd);
}
std::vector<std::string> weight_grad_implementations(const KernelQuery& q, const PrepareContext& context) {
  return all_implementations(q, ConvRole::kWeight, weight_grad_operands(q), context, nullptr, weight_grad_pd);
}

std::unique_ptr<PreparedKernel> prepare_conv(const KernelQuery& q, const PrepareContext& given) {
  const ConvOperands o = forward_operands(q);
  const PrepareContext context = worth_having(given, q, o);
  const ConvGeometry g = conv_geometry(q);
  const ConvEpilogue epilogue(q);
  const auto make = [&](const Choice& choice) -> std::unique_ptr<PreparedKernel> {
    const Implementation chosen = choice.implementation();
    const bool plain = chosen.winograd || !epilogue.any();  // oneDNN does nothing else
    const Layouts l = layouts_of(ConvRole::kOutput, o, g, q.op.c_str(), choice.blocked && plain);
    const bool by_pass = epilogue.any() && (plain || !finishes(o, g, l, epilogue, chosen));
    const auto pd = forward_pd(o, l, by_pass ? dnnl::post_ops() : epilogue.post_ops(), chosen);
    const bool in_blocks = by_pass && onednn::has_channel_blocks(pd.dst_desc());
    if (by_pass && chosen.winograd && !in_blocks) throw dnnl::error(dnnl_unimplemented, "blocks of another size");
    std::vector<onednn::Primitive::Arg> args = {
        {DNNL_ARG_SRC, pd.src_desc()}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, pd.dst_desc()}};
    if (o.has_bias) args.push_back({DNNL_ARG_BIAS, l.bias});
    if (!by_pass)
      for (onednn::Primitive::Arg& row : epilogue.row_args()) args.push_back(std::move(row));
    auto primitive =
        std::make_unique<onednn::Primitive>(dnnl::convolution_forward(pd), args, pd.scratchpad_desc(), context.threads);
    Ports ports(context.threads);
    Port x = ports.input(l.x, pd.src_desc()), w = ports.input(l.w, pd.weights_desc(), q, 1),
         y = ports.output(l.y, in_blocks ? activation_desc(o.y, true) : pd.dst_desc());
    Finish finish;
    if (epilogue.any()) {
      finish.epilogue = epilogue;
      finish.threads = context.threads;
      if (epilogue.norm) finish.rows = ports.add(3 * epilogue.row_bytes());
      finish.in_blocks = in_blocks;
      if (by_pass) {
        using Product = ConvEpilogue::Product;
        finish.pass = epilogue.pass(in_blocks ? Product::kChannelBlocks : Product::kChannelsLast, context.threads);
        if (in_blocks || epilogue.residual) finish.product = ports.add(epilogue.y.extent_bytes());
      }
      if (!by_pass && epilogue.residual) {
        const TensorSpec& residual = q.inputs[ConvEpilogue::kResidual];
        finish.add_to =
            ports.reorder(activation_desc(residual, is_channels_last(residual, q.op.c_str())), pd.dst_desc());
      }
    }
    return std::make_unique<ConvKernel>(std::move(primitive), std::move(x), std::move(w), std::move(y), o.has_bias,
                                        ports, std::move(finish));
  };
  return prepare_within_limit(q, ConvRole::kOutput, o, g, context, make, &epilogue);
}

std::unique_ptr<PreparedKernel> prepare_input_grad(const KernelQuery& q, const PrepareContext& given) {
  const ConvOperands o = input_grad_operands(q);
  const PrepareContext context = worth_having(given, q, o);
  const ConvGeometry g = conv_geometry(q);
  return prepare_within_limit(q, ConvRole::kInput, o, g, context, [&](const Choice& choice) {
    const Layouts l = layouts_of(ConvRole::kInput, o, g, "conv_input_grad", choice.blocked);
    const auto pd = input_grad_pd(l, choice.implementation());
    auto primitive = std::make_unique<onednn::Primitive>(
        dnnl::convolution_backward_data(pd),
        std::vector<onednn::Primitive::Arg>{{DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                            {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                            {DNNL_ARG_DIFF_SRC, pd.diff_src_desc()}},
        pd.scratchpad_desc(), context.threads);
    Ports ports(context.threads);
    const bool may_pack = computed_dtype(ConvRole::kInput, o, g) == o.w.dtype;  // packed copies keep their dtype
    Port y = ports.input(l.y, pd.diff_dst_desc()),
         w = may_pack ? ports.input(l.w, pd.weights_desc(), q, 1) : ports.input(l.w, pd.weights_desc()),
         x = ports.output(l.x, pd.diff_src_desc());
    return std::make_unique<ConvKernel>(std::move(primitive), std::move(y), std::move(w), std::move(x), false, ports);
  });
}

std::unique_ptr<PreparedKernel> prepare_weight_grad(const KernelQuery& q, const PrepareContext& given) {
  const ConvOperands o = weight_grad_operands(q);
  const PrepareContext context = worth_having(given, q, o);
  const ConvGeometry g = conv_geometry(q);
  return prepare_within_limit(q, ConvRole::kWeight, o, g, context, [&](const Choice& choice) {
    const Layouts l = layouts_of(ConvRole::kWeight, o, g, "conv_weight_grad", choice.blocked);
    const auto pd = weight_grad_pd(l, choice.implementation());
    auto primitive = std::make_unique<onednn::Primitive>(
        dnnl::convolution_backward_weights(pd),
        std::vector<onednn::Primitive::Arg>{{DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                            {DNNL_ARG_SRC, pd.src_desc()},
                                            {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}},
        pd.scratchpad_desc(), context.threads);
    Ports ports(context.threads);
    Port y = ports.input(l.y, pd.diff_dst_desc()), x = ports.input(l.x, pd.src_desc()),
         w = ports.output(l.w, pd.diff_weights_desc());
    return std::make_unique<ConvKernel>(std::move(primitive), std::move(y), std::move(x), std::move(w), false, ports);
  });
}

plan::LayoutPreference prefer(const KernelQuery& q, int weight_input, bool weight_output) {
  plan::LayoutPreference p{std::vector<Layout>(q.inputs.size(), Layout::kChannelsLast),
                           {weight_output ? Layout::kContiguous : Layout::kChannelsLast}};
  if (weight_input >= 0) p.inputs[weight_input] = Layout::kContiguous;
  for (size_t i = 2; i < std::min<size_t>(p.inputs.size(), ConvEpilogue::kResidual); ++i)
    p.inputs[i] = Layout::kContiguous;  // an element per channel
  return p;
}

}  // namespace

void add_convolution_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "conv",
                               .prepare = prepare_conv,
                               .layouts = [](const KernelQuery& q) { return prefer(q, 1, false); },
                               .implementations = conv_implementations,
                               .packs = {1}});
  table.add(DeviceKind::kCpu, {.op = "fused_conv",
                               .prepare = prepare_conv,
                               .layouts = [](const KernelQuery& q) { return prefer(q, 1, false); },
                               .in_place = {{0, ConvEpilogue::kResidual}},
                               .implementations = conv_implementations,
                               .packs = {1}});
  table.add(DeviceKind::kCpu, {.op = "conv_input_grad",
                               .prepare = prepare_input_grad,
                               .layouts = [](const KernelQuery& q) { return prefer(q, 1, false); },
                               .implementations = input_grad_implementations,
                               .packs = {1}});
  table.add(DeviceKind::kCpu, {.op = "conv_weight_grad",
                               .prepare = prepare_weight_grad,
                               .layouts = [](const KernelQuery& q) { return prefer(q, -1, true); },
                               .implementations = weight_grad_implementations});
}

}  // namespace sluice::cpu
