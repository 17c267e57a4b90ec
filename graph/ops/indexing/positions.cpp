#include "graph/ops/positions.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/reduction.h"
#include "graph/ops/shaping.h"

namespace sluice::ops {
namespace {

constexpr int kDim = 0, kName = 1;  // params of shorten

// Each goes where as many true ones are before it, and the false ones behind the end.
Values decompose_positions(std::span<const Value> in, const Attrs&) {
  const int64_t n = in[0].shape()[0];
  if (n == 0) return {zeros({0}, DType::kInt64), zeros({}, DType::kInt64)};
  const Value ones = cast(in[0], DType::kInt64);
  const Value places = where(in[0], sub(cumsum(ones, 0), 1), n);
  const Value at = scatter(zeros({n + 1}, DType::kInt64), places, iota(0, 1, n), 0);
  return {narrow(at, 0, 0, n), sum(ones)};
}

const OpDef positions_def{
    .name = "positions",
    .doc =
        "Where elements of a mask of one axis are true, ascending, with zeros behind: int64; and how many there are: "
        "int64 without axes. What torch.nonzero takes.",
    .inputs = {"mask"},
    .num_outputs = 2,
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      SLUICE_CHECK(in[0].dtype == DType::kBool && in[0].shape.rank() == 1, "mask: is {}; must be bool of one axis",
                   in[0].str());
      return {{DType::kInt64, in[0].shape}, {DType::kInt64, {}}};
    },
    .grad = no_gradient,
    .decompose = decompose_positions,
    .sbp =
        [](Types, const Attrs&) {
          return std::vector<SbpRow>{{{Sbp::broadcast()}, {Sbp::broadcast(), Sbp::broadcast()}}};
        },
    .samples = {{.inputs = {{.shape = {7}, .dtype = DType::kBool, .low = 0, .high = 2}}},
                {.inputs = {{.shape = {200}, .dtype = DType::kBool, .low = 0, .high = 2}}},
                {.inputs = {{.shape = {0}, .dtype = DType::kBool}}}}};

int shortened_axis(const TensorType& x, const Attrs& attrs) {
  return normalize_axis(attr<int64_t>(attrs, kDim), x.shape.rank(), "dim");
}

const OpDef shorten_def{
    .name = "shorten",
    .doc =
        "x with zeros in place of the rows along `dim` from `extent` on. In a graph its result is as long as `extent` "
        "says, by a dim called `name`; without a name it has all rows.",
    .inputs = {"x", "extent"},
    .params = {{.name = "dim", .default_value = int64_t{0}, .required = true},
               {.name = "name", .default_value = std::string()}},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      shortened_axis(in[0], attrs);
      SLUICE_CHECK((in[1] == TensorType{DType::kInt64, {}}), "extent: is {}; must be int64[]", in[1].str());
      return {in[0]};
    },
    .grad = [](const GradContext& c) -> Values {
      return {keep_rows(c.grad_outputs[0], c.inputs[1], attr<int64_t>(c.attrs, kDim)), Value()};
    },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      const int axis = shortened_axis(in[0].type(), attrs);
      Ints column(static_cast<size_t>(in[0].rank() - axis), 1);
      column[0] = in[0].shape()[axis];
      const Value there = reshape(lt(iota(0, 1, column[0]), in[1]), column);
      return {where(there, in[0], zeros({}, in[0].dtype()))};
    },
    .sbp =
        [](Types in, const Attrs& attrs) {
          std::vector<SbpRow> rows = broadcast_sbp(in, attrs);
          for (int axis = 0; axis < in[0].shape.rank(); ++axis)
            if (axis != shortened_axis(in[0], attrs))
              rows.push_back(row_of({Sbp::split(axis), Sbp::broadcast()}, Sbp::split(axis)));
          return rows;
        },
    .varying =
        [](Types in, Types, const Attrs& attrs) {
          return std::vector<OpDef::Varying>{{.axis = shortened_axis(in[0], attrs),
                                              .extent = 1,
                                              .taken = true,
                                              .dim = attr<std::string>(attrs, kName)}};
        },
    // Without names, since a graph would cut the results.
    .samples = {{.inputs = {{.shape = {5}}, {.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 6}},
                 .attrs = {int64_t{0}, std::string()}},
                {.inputs = {{.shape = {2, 4, 3}}, {.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 5}},
                 .attrs = {int64_t{-2}, std::string()}}}};

}  // namespace

std::span<const OpDef* const> positions_ops() {
  static const OpDef* const ops[] = {&positions_def, &shorten_def};
  return ops;
}

Positions positions(const Value& mask) {
  const std::vector<Value> out = call(positions_def, std::vector{mask});
  return {out[0], out[1]};
}
Value keep_rows(const Value& x, const Value& extent, int64_t dim) { return shorten(x, extent, dim, ""); }
Value shorten(const Value& x, const Value& extent, int64_t dim, const std::string& name) {
  return call1(shorten_def, {x, extent}, {dim, name});
}

}  // namespace sluice::ops
