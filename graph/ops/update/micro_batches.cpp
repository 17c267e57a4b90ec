// accumulate, pack.
#include "graph/ops/micro_batches.h"

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/movement.h"

namespace sluice::ops {
namespace {

int64_t count_of(const Attrs& attrs) {
  const int64_t n = attr<int64_t>(attrs, 0);
  SLUICE_CHECK(n >= 1 && n <= 1 << 20, "n: {}; must be in [1, {}]", n, 1 << 20);
  return n;
}

const Param kCount{.name = "n", .default_value = int64_t{1}, .required = true};

const OpDef accumulate_def{
    .name = "accumulate",
    .doc = "The sum of the values that x has in the n micro-batches of a step, added up in order.",
    .inputs = {"x"},
    .params = {kCount},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      count_of(attrs);
      return {in[0]};
    },
    .grad = [](const GradContext& c) -> Values { return {c.grad_outputs[0]}; },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      check_one_value(accumulate_op(), attrs);
      return {copy(in[0])};
    },
    .sbp = linear_sbp,
    .of_all = true,
    .samples = {{{{.shape = {3, 4}}}, {int64_t{1}}},
                {{{.shape = {}}}, {int64_t{1}}},
                {{{.shape = {0, 2}}}, {int64_t{1}}},
                {{{.shape = {5}, .dtype = DType::kInt64}}, {int64_t{1}}}}};

const OpDef pack_def{
    .name = "pack",
    .doc =
        "The values that x has in the n micro-batches of a step, one after another along axis 0; of scalars a vector.",
    .inputs = {"x"},
    .params = {kCount},
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      TensorType type = in[0];
      if (type.shape.rank() == 0) type.shape = {1};
      SLUICE_CHECK(!__builtin_mul_overflow(type.shape[0], count_of(attrs), &type.shape[0]),
                   "n: {} values of {}; too large", count_of(attrs), in[0].str());
      return {type};
    },
    .grad = [](const GradContext& c) -> Values { return {reshape(c.grad_outputs[0], c.inputs[0].shape().vec())}; },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      check_one_value(pack_op(), attrs);
      return {copy(in[0].rank() == 0 ? reshape(in[0], {1}) : in[0])};
    },
    .sbp =
        [](Types in, const Attrs&) {
          std::vector<int> others;
          for (int i = 1; i < in[0].shape.rank(); ++i) others.push_back(i);
          return untouched_sbp(in, others, true);
        },
    .of_all = true,
    .samples = {{{{.shape = {3, 4}}}, {int64_t{1}}},
                {{{.shape = {}}}, {int64_t{1}}},
                {{{.shape = {0, 2}}}, {int64_t{1}}}}};

}  // namespace

const OpDef& accumulate_op() { return accumulate_def; }
const OpDef& pack_op() { return pack_def; }
std::span<const OpDef* const> micro_batches_ops() {
  static const OpDef* const ops[] = {&accumulate_def, &pack_def};
  return ops;
}

void check_one_value(const OpDef& op, const Attrs& attrs) {
  SLUICE_CHECK(count_of(attrs) == 1,
               "{}: n is {}; without micro-batches (nn.Graph) there is one value, so it must be 1", op.name,
               count_of(attrs));
}

Value accumulate(const Value& x, int64_t n) { return call1(accumulate_def, {x}, {n}); }
Value pack(const Value& x, int64_t n) { return call1(pack_def, {x}, {n}); }

}  // namespace sluice::ops
