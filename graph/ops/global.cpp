// to_global, global_like.
#include "graph/ops/global.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/movement.h"

namespace sluice::ops {
namespace {

using Values = std::vector<Value>;

// A handle of its own: an op's output is never its input.
Values same(std::span<const Value> in, const Attrs&) { return {copy(in[0])}; }

std::vector<TensorType> infer_to_global(Types in, Present, const Attrs& attrs) {
  const DeviceMesh mesh = parse_mesh(attr<std::string>(attrs, 0));
  const Sbp sbp = parse_sbp(attr<std::string>(attrs, 1));
  if (sbp.kind != Sbp::Kind::kSplit) return {in[0]};
  const Shape& shape = in[0].shape;
  SLUICE_CHECK(sbp.axis < shape.rank(), "sbp: {} of a tensor of rank {}: {}; the axis must be below the rank",
               sbp.str(), shape.rank(), in[0].str());
  SLUICE_CHECK(shape[sbp.axis] >= mesh.size(),
               "sbp: {} of {} over {} devices: axis {} has {} elements; each device must get at least one", sbp.str(),
               in[0].str(), mesh.size(), sbp.axis, shape[sbp.axis]);
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
        "The same logical tensor, lying on the devices of `mesh` (as \"sim:0-3\") as `sbp` says: \"S(axis)\" each "
        "holds a part, \"B\" each holds all, \"P\" what they hold adds up. oneflow.Tensor.to_global.",
    .inputs = {"x"},
    .params = {{.name = "mesh", .default_value = std::string(), .required = true},
               {.name = "sbp", .default_value = std::string(), .required = true}},
    .infer = infer_to_global,
    .grad = [](const GradContext& c) -> Values {
      return {call1(global_like_op(), {c.grad_outputs[0], c.inputs[0]})};
    },
    .decompose = same,
    .sbp = broadcast_sbp,
    .samples = {{{{.shape = {4, 3}}}, {std::string("sim:0-1"), std::string("S(0)")}},
                {{{.shape = {4, 5}}}, {std::string("sim:0,sim:2-3"), std::string("S(1)")}},
                {{{.shape = {}}}, {std::string("sim:0"), std::string("B")}},
                {{{.shape = {2, 3}}}, {std::string("sim:0-1"), std::string("P")}}}};

const OpDef* const kOps[] = {&to_global_def, &global_like_def};

}  // namespace

const OpDef& to_global_op() { return to_global_def; }
const OpDef& global_like_op() { return global_like_def; }
std::span<const OpDef* const> global_ops() { return kOps; }

Value to_global(const Value& x, const DeviceMesh& mesh, const Sbp& sbp) {
  return call1(to_global_def, {x}, {mesh.str(), sbp.str()});
}

}  // namespace sluice::ops
