// case, esac.
#include "graph/ops/branches.h"

#include <algorithm>

#include "graph/executor.h"
#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"

namespace sluice::ops {
namespace {

constexpr int64_t kMostBranches = 1 << 16;

void check_branch_index(const TensorType& index) {
  SLUICE_CHECK_KIND(kType, index.dtype == DType::kBool || index.dtype == DType::kInt32 || index.dtype == DType::kInt64,
                    "index: {}; must be bool, int32 or int64", dtype_name(index.dtype));
  SLUICE_CHECK(index.shape.rank() == 0, "index: shape {}; must be a scalar", index.shape.str());
}

int64_t branches_of(const TensorType& index, const Attrs& attrs) {
  const int64_t n = attr<int64_t>(attrs, 0);
  SLUICE_CHECK(n >= 1 && n <= kMostBranches, "n: {}; must be in [1, {}]", n, kMostBranches);
  SLUICE_CHECK(index.dtype != DType::kBool || n <= 2, "n: {} branches; a bool chooses among two", n);
  return n;
}

// The index in a type that all numbers of branches have.
Value number(const Value& index) { return cast(index, DType::kInt64); }

const OpDef case_def{
    .name = "case",
    .doc =
        "n values, of which number `index` (a scalar: bool, int32 or int64) is x. In a plan the others are void: what "
        "reads them does not run, and is void in turn, up to an esac. Eager, and on devices without a kernel of it, "
        "they are zeros.",
    .inputs = {"index", "x"},
    .params = {{.name = "n", .default_value = int64_t{2}}},
    .num_outputs = -1,
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      check_branch_index(in[0]);
      return std::vector<TensorType>(static_cast<size_t>(branches_of(in[0], attrs)), in[1]);
    },
    .grad = [](const GradContext& c) -> Values {
      Values grads;
      for (size_t i = 0; i < c.outputs.size(); ++i) {
        grads.push_back(c.grad_outputs[i].defined() ? c.grad_outputs[i]
                                                    : zeros(c.outputs[i].shape(), c.outputs[i].dtype()));
      }
      return {Value(), esac(c.inputs[0], grads)};
    },
    .decompose = [](std::span<const Value> in, const Attrs& attrs) -> Values {
      Values outputs;
      for (int64_t i = 0; i < attr<int64_t>(attrs, 0); ++i)
        outputs.push_back(where(eq(number(in[0]), i), in[1], zeros({}, in[1].dtype())));
      return outputs;
    },
    .sbp =
        [](Types, const Attrs& attrs) {
          SbpRow row;
          row.inputs.assign(2, Sbp::broadcast());
          row.outputs.assign(static_cast<size_t>(attr<int64_t>(attrs, 0)), Sbp::broadcast());
          return std::vector<SbpRow>{row};
        },
    .samples = {{{{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 1}, {.shape = {3, 4}}}, {int64_t{1}}},
                {{{.shape = {}, .dtype = DType::kInt32, .low = 0, .high = 1}, {.shape = {}}}, {int64_t{1}}},
                {{{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 1}, {.shape = {0, 2}}}, {int64_t{1}}},
                {{{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 1}, {.shape = {5}, .dtype = DType::kInt64}},
                 {int64_t{1}}}}};

const OpDef esac_def{
    .name = "esac",
    .doc =
        "The value with number `index` among `xs`, which all have one type; index, the first of the inputs, is a "
        "scalar: bool, int32 or int64. In a plan the others may be void; the result is void where the index or the "
        "chosen value is.",
    .inputs = {"xs*"},
    .infer = [](Types in, Present, const Attrs&) -> std::vector<TensorType> {
      SLUICE_CHECK(in.size() >= 2, "inputs: {}; needs an index and a value at least", in.size());
      check_branch_index(in[0]);
      branches_of(in[0], {static_cast<int64_t>(in.size()) - 1});
      for (size_t i = 2; i < in.size(); ++i)
        SLUICE_CHECK_KIND(kType, in[i] == in[1], "values: {} and {}; all branches must give one type", in[1].str(),
                          in[i].str());
      return {in[1]};
    },
    .grad = [](const GradContext& c) -> Values {
      Values grads = case_of(c.inputs[0], c.grad_outputs[0], static_cast<int64_t>(c.inputs.size()) - 1);
      grads.insert(grads.begin(), Value());
      return grads;
    },
    .decompose = [](std::span<const Value> in, const Attrs&) -> Values {
      Value result = in[1];
      for (size_t i = 2; i < in.size(); ++i)
        result = where(eq(number(in[0]), static_cast<int64_t>(i) - 1), in[i], result);
      return {result};
    },
    .sbp = broadcast_sbp,
    .samples = {{{{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 1}, {.shape = {3}}}},
                {{{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 2}, {.shape = {3, 4}}, {.shape = {3, 4}}}},
                {{{.shape = {}, .dtype = DType::kInt32, .low = 1, .high = 2}, {.shape = {}}, {.shape = {}}}},
                {{{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 3},
                  {.shape = {0, 2}},
                  {.shape = {0, 2}},
                  {.shape = {0, 2}}}},
                {{{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 2},
                  {.shape = {2}, .dtype = DType::kInt32},
                  {.shape = {2}, .dtype = DType::kInt32}}}}};

}  // namespace

const OpDef& case_op() { return case_def; }
const OpDef& esac_op() { return esac_def; }
std::span<const OpDef* const> branches_ops() {
  static const OpDef* const ops[] = {&case_def, &esac_def};
  return ops;
}

Values case_of(const Value& index, const Value& x, int64_t n) {
  const Value inputs[] = {index, x};
  return call(case_def, inputs, {n});
}

Value esac(const Value& index, std::span<const Value> xs) {
  Values inputs{index};
  inputs.insert(inputs.end(), xs.begin(), xs.end());
  return call(esac_def, inputs)[0];
}

}  // namespace sluice::ops
