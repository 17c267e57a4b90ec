#include "kernels/cpu/onednn/onednn.h"

#include <omp.h>

#include <algorithm>

#include "base/log.h"
#include "kernels/worker_threads.h"

namespace sluice::cpu::onednn {

#define SLUICE_ONEDNN_3 (DNNL_VERSION_MAJOR >= 3)

const dnnl::engine& cpu_engine() {
  // Descriptors and primitives refer to their engine without keeping it, so this one stays. It has no state.
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool supports(DType dtype) {
  if (dtype == DType::kFloat32) return true;
  if (dtype != DType::kBFloat16) return false;
  // Without AVX-512 oneDNN has only slow reference code for bfloat16.
  static const bool fast = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
  return fast;
}

bool multiplies_int8() {
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_vnni);
  static const bool does = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
  return does;
}

dnnl::memory::data_type data_type(DType dtype) {
  using Type = dnnl::memory::data_type;
  switch (dtype) {
    case DType::kFloat32: return Type::f32;
    case DType::kBFloat16: return Type::bf16;
    case DType::kFloat16: return Type::f16;
    case DType::kInt32: return Type::s32;
    case DType::kInt8: return Type::s8;
    case DType::kUInt8: return Type::u8;
    default: fail(ErrorKind::kUnsupported, "onednn: dtype without counterpart: {}; use float32", dtype_name(dtype));
  }
}

Dims dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

namespace {

template <class Layout>
Desc checked_desc(DType dtype, const Shape& shape, const Layout& layout) {
  try {
    return Desc(dims(shape), data_type(dtype), layout);
  } catch (const dnnl::error& e) {
    fail(ErrorKind::kUnsupported, "onednn: a layout of {}: {}; its strides must be those of a plain tensor",
         TensorType{dtype, shape}.str(), e.what());
  }
}

Dims dims_of(const Desc& desc) {
#if SLUICE_ONEDNN_3
  return desc.get_dims();
#else
  return desc.dims();
#endif
}

}  // namespace

Desc desc(DType dtype, const Shape& shape, const Strides& strides) { return checked_desc(dtype, shape, dims(strides)); }

Desc any_desc(DType dtype, const Shape& shape) { return checked_desc(dtype, shape, dnnl::memory::format_tag::any); }

bool has_channel_blocks(const Desc& desc) {
  const Dims shape = dims_of(desc);
  return shape.size() == 4 && shape[1] % kBlock == 0 &&
         desc == Desc(shape, dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw16c);
}

size_t bytes(const Desc& desc) { return desc.get_size(); }

std::string format(const Desc& desc) {
  Dims dims, padded, strides, blocks, blocked_axes;
#if SLUICE_ONEDNN_3
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return "";
  dims = desc.get_dims(), padded = desc.get_padded_dims(), strides = desc.get_strides();
  blocks = desc.get_inner_blks(), blocked_axes = desc.get_inner_idxs();
#else
  const dnnl_memory_desc_t& d = desc.data;
  if (d.offset0 != 0) return "";
  if (d.format_kind == dnnl_format_kind_wino) {
    const dnnl_wino_desc_t& w = d.format_desc.wino_desc;
    return fmt::format("winograd {} of {}x{} weights {}, tiles of {}, blocks {}x{} and {}x{}, scaled by {}",
                       static_cast<int>(w.wino_format), w.oc, w.ic, w.r, w.alpha, w.oc_block, w.ic_block, w.oc2_block,
                       w.ic2_block, w.adj_scale);
  }
  if (d.format_kind != dnnl_blocked) return "";
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  dims.assign(d.dims, d.dims + d.ndims), padded.assign(d.padded_dims, d.padded_dims + d.ndims);
  strides.assign(b.strides, b.strides + d.ndims);
  blocks.assign(b.inner_blks, b.inner_blks + b.inner_nblks);
  blocked_axes.assign(b.inner_idxs, b.inner_idxs + b.inner_nblks);
#endif
  std::string text = fmt::format("{} elements", fmt::join(dims, "x"));
  if (padded != dims) text += fmt::format(" filled up to {}", fmt::join(padded, "x"));
  text += fmt::format(", strides {}", fmt::join(strides, ","));
  for (size_t i = 0; i < blocks.size(); ++i)
    text += fmt::format("{}{} of axis {}", i == 0 ? ", blocks " : ", ", blocks[i], blocked_axes[i]);
#if SLUICE_ONEDNN_3
  // Behind 8-bit weights may be sums of them, which are not told apart.
  size_t elements = dnnl::memory::data_type_size(desc.get_data_type());
  for (const dnnl_dim_t n : padded) elements *= static_cast<size_t>(n);
  if (desc.get_size() > elements) return "";
#else
  if (d.extra.flags != 0)
    text += fmt::format(", sums {:#x} of axes {:#x} and {:#x}", d.extra.flags, d.extra.compensation_mask,
                        d.extra.asymm_compensation_mask);
#endif
  return text;
}

// Never more than OMP_THREAD_LIMIT: some primitives wait for every thread they were promised.
ThreadScope::ThreadScope(int threads) : previous_(omp_get_max_threads()) {
  threads = std::min(threads, omp_get_thread_limit());
  if (threads > 1) WorkerThreads::take_team(threads);
  if (previous_ != threads) omp_set_num_threads(threads);
}
ThreadScope::~ThreadScope() {
  if (omp_get_max_threads() != previous_) omp_set_num_threads(previous_);
}

static dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

dnnl::matmul::primitive_desc matmul_pd(const Desc& a, const Desc& b, const Desc* bias, const Desc& c,
                                       const dnnl::post_ops& post_ops) {
  auto attr = user_scratchpad();
  attr.set_post_ops(post_ops);
#if SLUICE_ONEDNN_3
  return bias ? dnnl::matmul::primitive_desc(cpu_engine(), a, b, *bias, c, attr)
              : dnnl::matmul::primitive_desc(cpu_engine(), a, b, c, attr);
#else
  return dnnl::matmul::primitive_desc(bias ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c), attr,
                                      cpu_engine());
#endif
}

static constexpr auto kForward = dnnl::prop_kind::forward_training;
static dnnl::algorithm algorithm_of(const Implementation& implementation) {
  return implementation.winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
}

// REQUIRES: what `first` was made with, a hint too, is there still, since oneDNN asks for others as for the first.
template <class Description>
static Description choose(const Description& first, const Implementation& implementation) {
  if (implementation.name.empty() && implementation.all == nullptr) return first;
  Description other = first;
  do {
    const std::string name = other.impl_info_str();
    if (!implementation.name.empty() && name == implementation.name) return other;
    std::vector<std::string>* const all = implementation.all;
    if (all == nullptr) continue;
    const bool known = std::find(all->begin(), all->end(), name) != all->end();
    if (all->empty() || (!known && name.find("ref") == std::string::npos)) all->push_back(name);
  } while (other.next_impl());
  return first;
}

static dnnl::convolution_forward::primitive_desc forward_pd(const Desc& x, const Desc& w, const Desc* bias,
                                                            const Desc& y, const ConvGeometry& g,
                                                            const dnnl::primitive_attr& attr,
                                                            const Implementation& implementation) {
  using Forward = dnnl::convolution_forward;
  const dnnl::algorithm algorithm = algorithm_of(implementation);
  const auto kind = implementation.winograd ? dnnl::prop_kind::forward_inference : kForward;  // which has more of them
#if SLUICE_ONEDNN_3
  const auto pd = bias ? Forward::primitive_desc(cpu_engine(), kind, algorithm, x, w, *bias, y, g.strides, g.dilation,
                                                 g.padding_low, g.padding_high, attr)
                       : Forward::primitive_desc(cpu_engine(), kind, algorithm, x, w, y, g.strides, g.dilation,
                                                 g.padding_low, g.padding_high, attr);
#else
  auto d = bias ? Forward::desc(kind, algorithm, x, w, *bias, y, g.strides, g.dilation, g.padding_low, g.padding_high)
                : Forward::desc(kind, algorithm, x, w, y, g.strides, g.dilation, g.padding_low, g.padding_high);
  const auto pd = Forward::primitive_desc(d, attr, cpu_engine());
#endif
  return choose(pd, implementation);
}

dnnl::convolution_forward::primitive_desc conv_pd(const Desc& x, const Desc& w, const Desc* bias, const Desc& y,
                                                  const ConvGeometry& g, const dnnl::post_ops& post_ops,
                                                  const Implementation& implementation) {
  auto attr = user_scratchpad();
  attr.set_post_ops(post_ops);
  return forward_pd(x, w, bias, y, g, attr, implementation);
}

dnnl::convolution_forward::primitive_desc int8_conv_pd(const Desc& x, const Desc& w, const Desc& y,
                                                       const ConvGeometry& g, const dnnl::post_ops& post_ops,
                                                       bool zero) {
  auto attr = user_scratchpad();
  attr.set_post_ops(post_ops);
#if SLUICE_ONEDNN_3
  if (zero) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
#else
  if (zero) attr.set_zero_points(DNNL_ARG_SRC, 0, {DNNL_RUNTIME_S32_VAL});
#endif
  return forward_pd(x, w, nullptr, y, g, attr, {});
}

dnnl::convolution_backward_data::primitive_desc conv_input_grad_pd(const Desc& dx, const Desc& w, const Desc& dy,
                                                                   const ConvGeometry& g,
                                                                   const Implementation& implementation) {
  using Backward = dnnl::convolution_backward_data;
  const dnnl::algorithm algorithm = algorithm_of(implementation);
  auto hint = conv_pd(dx, w, nullptr, dy, g, {}, {.winograd = implementation.winograd});
#if SLUICE_ONEDNN_3
  const auto pd = Backward::primitive_desc(cpu_engine(), algorithm, dx, w, dy, g.strides, g.dilation, g.padding_low,
                                           g.padding_high, hint, user_scratchpad());
#else
  const Backward::desc d(algorithm, dx, w, dy, g.strides, g.dilation, g.padding_low, g.padding_high);
  const auto attr = user_scratchpad();
  const auto pd = Backward::primitive_desc(d, attr, cpu_engine(), hint);
#endif
  return choose(pd, implementation);
}

dnnl::convolution_backward_weights::primitive_desc conv_weight_grad_pd(const Desc& x, const Desc& dw, const Desc& dy,
                                                                       const ConvGeometry& g,
                                                                       const Implementation& implementation) {
  using Backward = dnnl::convolution_backward_weights;
  const dnnl::algorithm algorithm = algorithm_of(implementation);
  auto hint = conv_pd(x, dw, nullptr, dy, g, {}, {.winograd = implementation.winograd});
#if SLUICE_ONEDNN_3
  const auto pd = Backward::primitive_desc(cpu_engine(), algorithm, x, dw, dy, g.strides, g.dilation, g.padding_low,
                                           g.padding_high, hint, user_scratchpad());
#else
  const Backward::desc d(algorithm, x, dw, dy, g.strides, g.dilation, g.padding_low, g.padding_high);
  const auto attr = user_scratchpad();
  const auto pd = Backward::primitive_desc(d, attr, cpu_engine(), hint);
#endif
  return choose(pd, implementation);
}

void append_eltwise(dnnl::post_ops& post_ops, dnnl::algorithm algorithm, float alpha, float beta) {
#if SLUICE_ONEDNN_3
  post_ops.append_eltwise(algorithm, alpha, beta);
#else
  post_ops.append_eltwise(1.f, algorithm, alpha, beta);
#endif
}

Primitive::Primitive(const dnnl::primitive& primitive, std::vector<Arg> args, const Desc& scratchpad, int threads)
    : stream_(cpu_engine()),
      primitive_(primitive),
      args_(std::move(args)),
      scratchpad_bytes_(scratchpad.get_size()),
      threads_(threads) {
  args_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad});
  idle_[0] = make_call().release();
  if (log_enabled(LogLevel::kDebug, LogArea::kKernels))
    log(LogLevel::kDebug, LogArea::kKernels, "oneDNN: {} for {} threads, {} bytes of workspace", implementation(),
        threads_, scratchpad_bytes_);
}

std::string Primitive::implementation() const {
  const_dnnl_primitive_desc_t description = nullptr;
  const char* name = nullptr;
  if (dnnl_primitive_get_primitive_desc(primitive_.get(), &description) != dnnl_success ||
      dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) != dnnl_success)
    return "";
  return name;
}

std::unique_ptr<Primitive> Primitive::make_reorder(const Desc& from, const Desc& to, int threads) {
  ThreadScope scope(threads);
  auto pd = dnnl::reorder::primitive_desc(cpu_engine(), from, cpu_engine(), to, user_scratchpad());
  return std::make_unique<Primitive>(dnnl::reorder(pd), std::vector<Arg>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}},
                                     pd.scratchpad_desc(), threads);
}

Primitive::~Primitive() {
  for (auto& call : idle_) delete call.load();
}

std::unique_ptr<Primitive::Call> Primitive::make_call() const {
  auto call = std::make_unique<Call>();
  for (const Arg& arg : args_) {
    call->memories.push_back(dnnl::memory(arg.desc, cpu_engine(), nullptr));
    call->args.push_back({arg.id, call->memories.back().get()});
  }
  return call;
}

void Primitive::run(std::span<const void* const> pointers) const {
  std::unique_ptr<Call> call;
  for (auto& slot : idle_) {
    call.reset(slot.exchange(nullptr, std::memory_order_acquire));
    if (call) break;
  }
  if (!call) call = make_call();
  ThreadScope scope(threads_);
  dnnl_status_t status = dnnl_success;
  size_t i = 0;
  for (const void* pointer : pointers) {
    if (status == dnnl_success)
      status = dnnl_memory_set_data_handle(call->args[i++].memory, const_cast<void*>(pointer));
  }
  if (status == dnnl_success) {
    status =
        dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(call->args.size()), call->args.data());
  }
  for (auto& slot : idle_) {
    Call* expected = nullptr;
    if (slot.compare_exchange_strong(expected, call.get(), std::memory_order_release, std::memory_order_relaxed)) {
      call.release();
      break;
    }
  }
  SLUICE_CHECK_KIND(kRuntime, status == dnnl_success,
                    "onednn: a primitive failed: status {}; this is a bug, please report it", static_cast<int>(status));
}

}  // namespace sluice::cpu::onednn
