// to_global, global_like.
#include "graph/ops/global.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/movement.h"

namespace sluice::ops {
namespace {

// A handle of its own: an op's output is never its input.
Values same(std::span<const Value> in, const Attrs&) { return {copy(in[0])}; }

std::vector<TensorType> infer_to_global(Types in, Present, const Attrs& attrs) {
  const GlobalPlacement placement = placement_of(attrs);
  check_layout(in[0].shape, placement.mesh, placement.sbp, in[0].str());
  return {in[0]};
}

const OpDef global_like_def{.name = "global_like",
                            .doc = "The same logical tensor as x, on the devices on which `like` lies.",
                            .inputs = {"x", "like"},
                            .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
                              SLUICE_CHECK(in[0].shape == in[1].shape,
                                           "shapes differ: x is {}, like is {}; they must be equal", in[0].shape.str(),
                                           in[1].shape.str());
                              return {in[0]};
                            },
                            .grad = [](const GradContext& c) -> Values {
                              return {call1(global_like_op(), {c.grad_outputs[0], c.inputs[0]}), Value()};
                            },
                            .decompose = same,
                            .sbp = broadcast_sbp,
                            .samples = {{{{.shape = {3, 4}}, {.shape = {3, 4}}}}, {{{.shape = {}}, {.shape = {}}}}}};

const OpDef to_global_def{
    .name = "to_global",
    .doc =
        "The same logical tensor, lying on the devices of `mesh` as `sbp` says: \"split\" each holds a part along "
        "`axis`, \"broadcast\" each holds all, \"partial_sum\" what they hold adds up. A mesh of several axes is one "
        "text, "
        "as in \"sim:0-3 (2, 2)\", and `sbp` has a word for each axis, as in \"S(0),B\". oneflow.Tensor.to_global.",
    .inputs = {"x"},
    .params = {{.name = "mesh", .default_value = Strings(), .required = true},
               {.name = "sbp", .default_value = std::string(), .required = true},
               {.name = "axis", .default_value = int64_t{0}}},
    .infer = infer_to_global,
    .grad = [](const GradContext& c) -> Values {
      return {call1(global_like_op(), {c.grad_outputs[0], c.inputs[0]})};
    },
    .decompose = same,
    .sbp = broadcast_sbp,
    .relays = true,
    .samples = {{{{.shape = {4, 3}}}, {Strings{"sim:0", "sim:1"}, std::string("split"), int64_t{0}}},
                {{{.shape = {4, 5}}}, {Strings{"sim:0", "sim:2", "sim:3"}, std::string("split"), int64_t{1}}},
                {{{.shape = {}}}, {Strings{"sim:0"}, std::string("broadcast"), int64_t{0}}},
                {{{.shape = {2, 3}}}, {Strings{"sim:0", "sim:1"}, std::string("partial_sum"), int64_t{0}}},
                {{{.shape = {4, 3}}}, {Strings{"sim:0-3 (dp=2, tp=2)"}, std::string("S(0),B"), int64_t{0}}}}};

}  // namespace

const OpDef& to_global_op() { return to_global_def; }
const OpDef& global_like_op() { return global_like_def; }
std::span<const OpDef* const> global_ops() {
  static const OpDef* const ops[] = {&to_global_def, &global_like_def};
  return ops;
}

Attrs to_global_attrs(const GlobalPlacement& placement) {
  return order_attrs(to_global_def, placement_attrs(placement));
}

GlobalPlacement placement_of(const Attrs& attrs) {
  return sluice::placement_of(attr<Strings>(attrs, 0), attr<std::string>(attrs, 1), attr<int64_t>(attrs, 2));
}

Value to_global(const Value& x, const DeviceMesh& mesh, const NdSbp& sbp) {
  return call1(to_global_def, {x}, to_global_attrs({mesh, sbp}));
}

}  // namespace sluice::ops
