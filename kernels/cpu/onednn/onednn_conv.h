#pragma once
// Helpers that kernels share which are convolutions of oneDNN: operands and geometry in its words, and operands that
// lie otherwise than its primitives want them.
#include <memory>
#include <vector>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/support/conv_geometry.h"
#include "kernels/cpu/support/support.h"
#include "plan/query.h"

namespace sluice::cpu {

// The roles of an op's operands in the convolution y = conv(x, w) + bias.
struct ConvOperands {
  TensorSpec x, w, y, bias;
  bool has_bias = false;
};
ConvGeometry conv_geometry(const plan::KernelQuery& query);
onednn::ConvGeometry onednn_geometry(const ConvGeometry& geometry, const ConvOperands& operands);
// Weights (O, C/groups, k...) as oneDNN wants them: with a leading dim of groups where there are several.
Shape weight_shape(const Shape& w, int64_t groups);
onednn::Desc activation_desc(const TensorSpec& spec, bool channels_last);

// An operand as the caller lays it and as the primitive wants it, reordered through the workspace where they differ.
struct Port {
  std::unique_ptr<onednn::Primitive> reorder;  // null: used in place
  uint64_t offset = 0;

  void* inner(const void* outer, void* workspace) const {
    return reorder ? at_offset(workspace, offset) : const_cast<void*>(outer);
  }
};

class Ports {
 public:
  explicit Ports(int threads) : threads_(threads) {}
  Port input(const onednn::Desc& given, const onednn::Desc& wanted) { return make(given, wanted, given, wanted); }
  // Input `number` of the query. If it may be packed, others make and keep a copy as the primitive wants it.
  Port input(const onednn::Desc& given, const onednn::Desc& wanted, const plan::KernelQuery& query, int number);
  Port output(const onednn::Desc& given, const onednn::Desc& wanted) { return make(given, wanted, wanted, given); }
  std::unique_ptr<onednn::Primitive> reorder(const onednn::Desc& from, const onednn::Desc& to);
  uint64_t add(uint64_t bytes) { return layout_.add(bytes); }
  // The primitive's own scratchpad, which the reorders use before and after it.
  uint64_t scratch(uint64_t bytes) { return layout_.add(std::max(bytes, reorder_scratch_)); }
  uint64_t bytes() const { return layout_.bytes(); }
  std::vector<Packing> take_packings() { return std::move(packings_); }

 private:
  Port make(const onednn::Desc& given, const onednn::Desc& wanted, const onednn::Desc& from, const onednn::Desc& to);
  int threads_;
  WorkspaceLayout layout_;
  uint64_t reorder_scratch_ = 0;
  std::vector<Packing> packings_;
};

}  // namespace sluice::cpu
