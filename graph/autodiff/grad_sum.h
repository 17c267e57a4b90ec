#pragma once
// Adds up the gradients that arrive for one value. When a tensor is cut up (chunk, unbind, a loop over its rows), each
// slice's gradient is zero everywhere else: such gradients are kept as the parts that they are, and put side by side at
// the end. So n slices move what one tensor holds, where n tensors of mostly zeros would be written and added.
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "graph/autodiff/tape.h"
#include "graph/op_def.h"

namespace sluice {

// A gradient of which all is zero but `value`, which begins at `begin` on `axis`, one of `whole` elements.
struct GradPart {
  Value value;
  int axis = 0;
  int64_t begin = 0, whole = 0;
};

namespace ops {
// The part that op's rule gives for its only input, where the gradient is zero elsewhere.
std::optional<GradPart> grad_part(const OpDef& op, const TensorType& input, const Attrs& attrs, const Value& grad);
}  // namespace ops

// The same of a recorded call; nothing of other nodes.
std::optional<GradPart> part_of(const GradNode& node, std::span<const Value> grad_outputs);

class GradSum {
 public:
  void add(Value grad);
  // `origin`: of the call that was cut, for what joins the parts.
  void add(GradPart part, std::shared_ptr<const Provenance> origin);
  // Undefined when nothing has arrived. Leaves nothing behind.
  Value take();

 private:
  // They do not overlap, so they hold no more than the whole does.
  struct Parts {
    int axis = 0;
    int64_t whole = 0;
    std::shared_ptr<const Provenance> origin;
    std::map<int64_t, Value> by_begin = {};

    bool fits(const GradPart& part) const;
    Value joined() const;
  };
  void settle();

  Value sum_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice
