#pragma once
// The one door to oneDNN: types, primitive descriptors alike under 2.6 and 3.x, and calls without allocations of ours.
#include <array>
#include <atomic>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/tensor_spec.h"

namespace sluice::cpu::onednn {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

const dnnl::engine& cpu_engine();
// Whether oneDNN computes in this dtype here: float32 always, bfloat16 where the processor does.
bool supports(DType dtype);
// Whether it multiplies 8-bit integers here so that no sum saturates before it has 32 bits.
bool multiplies_int8();
dnnl::memory::data_type data_type(DType dtype);  // REQUIRES: supports(dtype) or an integer type it knows
Dims dims(const Shape& shape);
Desc desc(DType dtype, const Shape& shape, const Strides& strides);
inline Desc desc(const TensorSpec& spec) { return desc(spec.dtype, spec.shape, spec.strides); }
Desc any_desc(DType dtype, const Shape& shape);  // the primitive chooses the layout
// Whether these are images (N, C, H, W) of float32 in blocks of kBlock channels, (N, C / kBlock, H, W, kBlock).
constexpr int64_t kBlock = 16;
bool has_channel_blocks(const Desc& desc);
size_t bytes(const Desc& desc);
// The order of a blocked layout's elements in words: equal texts, equal orders, whatever the machine and the version of
// oneDNN. "" for a layout that is not made of blocks.
std::string format(const Desc& desc);

// A scope in which oneDNN uses `threads` OpenMP threads: a primitive must run with as many as it was created for.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int previous_;
};

// Which of its implementations a description is to name: that of `name`; oneDNN's own choice where it is "", or where
// there is none of that name. `all`: null, or where to put the names of all, oneDNN's choice first, without references,
// which are slow by two orders. `winograd`: among those that multiply transformed tiles (Lavin & Gray 2016), which
// exist for some convolutions of float32 on operands of blocks; where there are none, a dnnl::error.
struct Implementation {
  std::string_view name = {};
  std::vector<std::string>* all = nullptr;
  bool winograd = false;
};

struct ConvGeometry {
  Dims strides, dilation, padding_low, padding_high;  // dilation as oneDNN counts it: 0 = dense
};
// All with user-managed scratchpad; `threads` as at run time. Throw dnnl::error when unsupported.
dnnl::matmul::primitive_desc matmul_pd(const Desc& a, const Desc& b, const Desc* bias, const Desc& c,
                                       const dnnl::post_ops& post_ops);
dnnl::convolution_forward::primitive_desc conv_pd(const Desc& x, const Desc& w, const Desc* bias, const Desc& y,
                                                  const ConvGeometry& geometry, const dnnl::post_ops& post_ops = {},
                                                  const Implementation& implementation = {});
// The convolution of 8-bit integers; with `zero`, x has a zero point, which is an argument.
dnnl::convolution_forward::primitive_desc int8_conv_pd(const Desc& x, const Desc& w, const Desc& y,
                                                       const ConvGeometry& geometry, const dnnl::post_ops& post_ops,
                                                       bool zero);
dnnl::convolution_backward_data::primitive_desc conv_input_grad_pd(const Desc& dx, const Desc& w, const Desc& dy,
                                                                   const ConvGeometry& geometry,
                                                                   const Implementation& implementation = {});
dnnl::convolution_backward_weights::primitive_desc conv_weight_grad_pd(const Desc& x, const Desc& dw, const Desc& dy,
                                                                       const ConvGeometry& geometry,
                                                                       const Implementation& implementation = {});
// Whether a convolution's kernel applies rows of coefficients to its result as fast as a pass of its own would: those
// for AVX2 take longer, or leave it to plain loops, slower by two orders.
template <class Description>
bool finishes_rows(const Description& pd) {
  return std::string_view(pd.impl_info_str()).find("avx512") != std::string_view::npos;
}
void append_eltwise(dnnl::post_ops& post_ops, dnnl::algorithm algorithm, float alpha = 0, float beta = 0);

// A primitive and the descriptors of its arguments, in a fixed order; the last one is the scratchpad.
// Thread safety: run() may be called from several threads at once. It allocates nothing while at most kCalls of them
// are inside at a time.
class Primitive {
 public:
  struct Arg {
    int id;
    Desc desc;
  };
  Primitive(const dnnl::primitive& primitive, std::vector<Arg> args, const Desc& scratchpad, int threads);
  static std::unique_ptr<Primitive> make_reorder(const Desc& from, const Desc& to, int threads);
  ~Primitive();
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }
  std::string implementation() const;  // oneDNN's name of it
  // About what oneDNN keeps for it: generated code, for the most part.
  static constexpr uint64_t kHeldBytes = 64 << 10;
  // `pointers` in the order of args, then the scratchpad (may be null when it needs none).
  void run(std::span<const void* const> pointers) const;
  void run(std::initializer_list<const void*> pointers) const {
    run(std::span<const void* const>(pointers.begin(), pointers.size()));
  }

 private:
  struct Call {
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> args;
  };
  static constexpr int kCalls = 4;
  std::unique_ptr<Call> make_call() const;

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<Arg> args_;
  size_t scratchpad_bytes_;
  int threads_;
  mutable std::array<std::atomic<Call*>, kCalls> idle_{};
};

// Runs `make`, turning oneDNN's exceptions into Error(kUnsupported) about `op`.
template <class F>
auto translate(const char* op, F make) {
  try {
    return make();
  } catch (const dnnl::error& e) {
    fail(ErrorKind::kUnsupported, "{}: oneDNN refuses these operands: {}; use float32 or bfloat16 operands", op,
         e.what());
  }
}

}  // namespace sluice::cpu::onednn
