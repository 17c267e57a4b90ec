// spill, fetch.
#include "graph/ops/spill.h"

#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

const TensorType kPlaceOfSpilled{DType::kInt64, {1}};

Values refuse_gradient(const GradContext&) {
  fail(ErrorKind::kUnsupported, "spill, fetch: have no gradients; the compiler puts them behind the backward pass");
}

const OpDef spill_def{
    .name = "spill",
    .doc = "Writes a value to the file of its session, by the function of this name, and tells where it lies there.",
    .inputs = {"x"},
    .params = {{.name = "function", .default_value = std::string(), .required = true},
               {.name = "offset", .default_value = int64_t{0}, .required = true}},
    .infer = [](Types, Present, const Attrs&) -> std::vector<TensorType> { return {kPlaceOfSpilled}; },
    .grad = refuse_gradient,
    .sbp = broadcast_sbp,
    .effectful = true};

const OpDef fetch_def{.name = "fetch",
                      .doc = "Reads a value of type `outputs` from the file of its session, once `after` is there.",
                      .inputs = {"after"},
                      .params = {{.name = "function", .default_value = std::string(), .required = true},
                                 {.name = "offset", .default_value = int64_t{0}, .required = true},
                                 {.name = "outputs", .default_value = TensorTypes(), .required = true}},
                      .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
                        const TensorTypes& types = attr<TensorTypes>(attrs, fetch_attr::kOutputs);
                        SLUICE_CHECK(types.size() == 1, "outputs: {} types; must be the one of what was spilled",
                                     types.size());
                        SLUICE_CHECK(in[0] == kPlaceOfSpilled, "after: got {}{}; must be what spill gives, int64(1,)",
                                     dtype_name(in[0].dtype), in[0].shape.str());
                        numel(types[0].shape);
                        return {types[0]};
                      },
                      .grad = refuse_gradient,
                      .sbp = broadcast_sbp,
                      .effectful = true};

}  // namespace

const OpDef& spill_op() { return spill_def; }
const OpDef& fetch_op() { return fetch_def; }
std::span<const OpDef* const> spill_ops() {
  static const OpDef* const ops[] = {&spill_def, &fetch_def};
  return ops;
}

}  // namespace sluice::ops
