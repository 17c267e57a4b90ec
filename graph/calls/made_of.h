#pragma once
// Tells which ops composite ops are made of. The ops without a decomposition are the primitive ones.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "plan/target.h"

namespace sluice::graph {

// Names of the ops that the decomposition of `op` calls for its samples, ascending, each once. None of a primitive op,
// as which also counts what cannot always be taken apart: a loop whose length a value of the graph says.
std::vector<std::string> made_of(const OpDef& op);

// A fused op (graph/ops/fused.h): its inputs are those of the op that it stands for, and then tensors without dims for
// the numbers among the steps, each made by a call of "full" with these attributes.
struct OnePass {
  struct Number {
    DType dtype;
    NamedAttrs full;
    bool operator==(const Number&) const = default;
  };
  AttrGraph body;
  std::vector<Number> numbers;
};

// The steps into which an elementwise op with inputs of these types decomposes. Nothing where an op of it is no step,
// or `can_fuse` refuses that.
std::optional<OnePass> steps_of(const OpDef& op, Types inputs, const Attrs& attrs, const DeviceId& device,
                                const std::function<bool(const plan::KernelQuery&)>& can_fuse);

}  // namespace sluice::graph
