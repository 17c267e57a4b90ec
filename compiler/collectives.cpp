#include "compiler/collectives.h"

namespace sluice::compiler {
namespace {

OpDef collective(const char* name, const char* doc, TensorType (*infer)(TensorType input, int64_t ranks)) {
  OpDef op{.name = name, .doc = doc, .inputs = {"x"}};
  op.params = {{.name = "ranks", .default_value = Ints(), .required = true},
               {.name = "meeting", .default_value = int64_t{0}, .required = true}};
  op.infer = [infer](Types in, std::span<const bool>, const Attrs& attrs) -> std::vector<TensorType> {
    return {infer(in[0], static_cast<int64_t>(attr<Ints>(attrs, 0).size()))};
  };
  op.effectful = true;  // of a call all ranks' nodes are kept, in one order
  return op;
}

}  // namespace

const OpDef& all_gather_op() {
  static const OpDef op = collective("all_gather", "The ranks' inputs, one behind the other along dimension 0.",
                                     [](TensorType type, int64_t ranks) {
                                       type.shape[0] *= ranks;
                                       return type;
                                     });
  return op;
}

const OpDef& all_to_all_op() {
  static const OpDef op = collective("all_to_all", "Part r along dimension 0 of every rank, on rank r.",
                                     [](TensorType type, int64_t) { return type; });
  return op;
}

bool is_collective(const OpDef& op) { return &op == &all_gather_op() || &op == &all_to_all_op(); }
const Ints& ranks_of(const graph::Node& collective) { return attr<Ints>(collective.attrs, 0); }
int64_t meeting_of(const graph::Node& collective) { return attr<int64_t>(collective.attrs, 1); }

}  // namespace sluice::compiler
