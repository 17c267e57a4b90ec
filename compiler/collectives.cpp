#include "compiler/collectives.h"

#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"

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

const OpDef& sum_parts_op() {
  static const OpDef op = [] {
    OpDef sum{.name = "sum_parts", .doc = "The sum of parts along dimension 0, in their order.", .inputs = {"x"}};
    sum.params = {{.name = "parts", .default_value = int64_t{1}, .required = true}};
    sum.infer = [](Types in, std::span<const bool>, const Attrs& attrs) -> std::vector<TensorType> {
      const int64_t parts = attr<int64_t>(attrs, 0);
      SLUICE_CHECK(in[0].shape.rank() == 1 && parts >= 1 && in[0].shape[0] % parts == 0,
                   "sum_parts: {} in {} parts; must be one dimension of a multiple of them", in[0].str(), parts);
      return {TensorType{in[0].dtype, {in[0].shape[0] / parts}}};
    };
    sum.decompose = [](std::span<const Value> inputs, const Attrs& attrs) -> std::vector<Value> {
      const int64_t parts = attr<int64_t>(attrs, 0), size = inputs[0].shape()[0] / parts;
      const auto part = [&](int64_t i) { return ops::slice_axis(inputs[0], 0, i * size, (i + 1) * size); };
      Value total = part(0);
      for (int64_t i = 1; i < parts; ++i) total = ops::add(total, part(i));
      return {total};
    };
    sum.cost = [](Types inputs, Types outputs, const Attrs&) -> Cost {
      return {static_cast<double>(numel(inputs[0].shape)), operand_bytes(inputs, outputs)};
    };
    return sum;
  }();
  return op;
}

bool is_collective(const OpDef& op) { return &op == &all_gather_op() || &op == &all_to_all_op(); }
const Ints& ranks_of(const graph::Node& collective) { return attr<Ints>(collective.attrs, 0); }
int64_t meeting_of(const graph::Node& collective) { return attr<int64_t>(collective.attrs, 1); }

}  // namespace sluice::compiler
