// foreign.
#include "graph/ops/foreign.h"

#include "graph/nested.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

const AttrGraph& body_of(const Attrs& attrs) { return attr<AttrGraph>(attrs, foreign_attr::kBody); }

std::vector<TensorType> infer_foreign(Types in, Present, const Attrs& attrs) {
  std::vector<TensorType> types;
  for (const int i : {int{foreign_attr::kBody}, int{foreign_attr::kProgram}}) {
    const AttrGraph& graph = attr<AttrGraph>(attrs, i);
    check_attr_graph(graph, in.size(), graph.outputs.size(), true);
    std::vector<TensorType> given = output_types(graph, infer_nested(graph, in));
    SLUICE_CHECK_KIND(kType, types.empty() || given == types,
                      "program: {} outputs; must give what the body gives, {} outputs of the same types", given.size(),
                      types.size());
    types = std::move(given);
  }
  SLUICE_CHECK(!types.empty(), "body: no outputs; must give at least one");
  return types;
}

const TensorType kThreeNumbers{DType::kFloat64, {3}};
AttrCall call_of(const char* op, std::vector<int> operands) {
  return {op, {}, std::move(operands), {TensorSpec::contiguous(kThreeNumbers)}};
}

// tanh(x * w), and tanh(x * w) + x.
AttrGraph sample_body() { return {2, {call_of("mul", {0, 1}), call_of("tanh", {2}), call_of("add", {3, 0})}, {3, 4}}; }
const SampleInput kInput{.shape = {3}, .dtype = DType::kFloat64};

const OpDef foreign_def{
    .name = "foreign",
    .doc =
        "A cluster of ops, `body`, that the library `backend` computes by `options` where the process has loaded it; "
        "else "
        "`program` is run, which are the kernels of the same.",
    .inputs = {"xs*"},
    .params = {{.name = "backend", .default_value = std::string(), .required = true},
               {.name = "options", .default_value = Strings{}, .required = true},
               {.name = "body", .default_value = AttrGraph(), .required = true},
               {.name = "program", .default_value = AttrGraph(), .required = true}},
    .num_outputs = -1,
    .infer = infer_foreign,
    .decompose = [](std::span<const Value> in, const Attrs& attrs) { return call_nested(body_of(attrs), in); },
    .sbp = [](Types in, const Attrs& attrs) -> std::vector<SbpRow> {
      return {{std::vector<Sbp>(in.size(), Sbp::broadcast()),
               std::vector<Sbp>(body_of(attrs).outputs.size(), Sbp::broadcast())}};
    },
    .cost = [](Types in, Types,
               const Attrs& attrs) { return cost_of_nested(body_of(attrs), infer_nested(body_of(attrs), in)); },
    .samples = {{{kInput, kInput}, {std::string("none"), Strings{}, sample_body(), sample_body()}}}};

}  // namespace

const OpDef& foreign_op() { return foreign_def; }
std::span<const OpDef* const> foreign_ops() {
  static const OpDef* const ops[] = {&foreign_def};
  return ops;
}

}  // namespace sluice::ops
