#pragma once
// Adds up the gradients that arrive for one value. When a tensor is cut up (chunk, unbind, a loop over its rows), each
// slice's gradient is zero everywhere else: such gradients are kept as the parts that they are, and put side by side at
// the end. So n slices move what one tensor holds, where n tensors of mostly zeros would be written and added.
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "graph/ops/grad_parts.h"
#include "graph/tape.h"

namespace sluice {

// The part that the rule of a recorded call gives for its only input, if any; nothing of other nodes.
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
