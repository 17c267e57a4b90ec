// Attention on cuDNN: what it takes, what it gives on the fake, and whether the real library has plans.
#include "kernels/cuda/attention/cudnn_attention.h"

#include "cuda/cudnn_fixture.h"

namespace sluice::cuda {
namespace {

using namespace test;
using plan::KernelQuery;

struct Case {
  int64_t heads = 2, own_heads = 2, rows = 5, keys = 5, width = 8, value_width = 8;
  bool causal = false;
  bool transposed = false;  // (batch, length, heads, width) in memory
};

// Forward, and backward.
std::vector<KernelQuery> queries(const Case& c, DType dtype, bool deterministic = false) {
  const auto laid = [&](int64_t heads, int64_t length, int64_t width) {
    TensorSpec spec = TensorSpec::contiguous({dtype, {2, heads, length, width}});
    if (c.transposed) spec.strides = {heads * length * width, width, heads * width, 1};
    return spec;
  };
  const TensorSpec q = laid(c.heads, c.rows, c.width), k = laid(c.own_heads, c.keys, c.width),
                   v = laid(c.own_heads, c.keys, c.value_width), result = laid(c.heads, c.rows, c.value_width),
                   lse = TensorSpec::contiguous({DType::kFloat32, {2, c.heads, c.rows}});
  const NamedAttrs attrs = {{"is_causal", c.causal},
                            {"scale", 0.4},
                            {"dropout_p", 0.0},
                            {"salt", int64_t{0}},
                            {plan::kDeterministic, deterministic}};
  return {{"attention", attrs, {q, k, v}, {result, lse}, parse_device("cuda")},
          {"attention_backward", attrs, {result, q, k, v, result, lse}, {q, k, v}, parse_device("cuda")}};
}

const Case kPlain;

std::vector<Case> cases() {
  return {kPlain,
          {.causal = true},
          {.heads = 4, .rows = 7, .keys = 3, .width = 16, .value_width = 24},
          {.rows = 4, .keys = 9, .causal = true, .transposed = true},
          {.heads = 6, .rows = 1, .keys = 1, .width = 40, .causal = true, .transposed = true}};
}

std::vector<Bytes> operands(const KernelQuery& query) {
  std::vector<Bytes> inputs = numbers(query);
  if (query.op == "attention") return inputs;
  // The result and its log-sum-exps are what forward gives.
  KernelQuery forward = query;
  forward.op = "attention";
  forward.inputs.assign(query.inputs.begin() + 1, query.inputs.begin() + 4);
  forward.outputs.assign(query.inputs.begin() + 4, query.inputs.begin() + 6);
  const auto made = all_on_cpu(forward, {inputs[1], inputs[2], inputs[3]});
  inputs[4] = made[0];
  inputs[5] = made[1];
  return inputs;
}

// Returns how many plans of cuDNN ran.
int expect_as_on_cpu(const KernelQuery& query, size_t offset = 0) {
  const fake_cudnn::Counts before = fake().counts();
  const auto inputs = operands(query);
  const auto got = all_on_cuda(offset, query, inputs), expected = all_on_cpu(query, inputs);
  for (size_t i = 0; i < got.size(); ++i) {
    KernelQuery one = query;
    one.outputs = {query.outputs[i]};
    SCOPED_TRACE(fmt::format("output {}", i));
    expect_close(one, got[i], expected[i], tolerance_of(query.inputs[1].dtype));
  }
  const fake_cudnn::Counts after = fake().counts();
  EXPECT_EQ(after.descriptors, before.descriptors);
  return after.executed - before.executed;
}

TEST(CudnnAttention, IsAsOnTheCpu) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const Case& c : cases()) {
      for (const KernelQuery& query : queries(c, dtype)) {
        SCOPED_TRACE(query.op + " " + query.inputs[1].shape.str() + " " + query.inputs[2].shape.str());
        EXPECT_EQ(expect_as_on_cpu(query), 1);
      }
    }
  }
}

// Its engines load 16 bytes at once, so the generated kernel takes views that begin elsewhere.
TEST(CudnnAttention, IsLeftWhereOperandsBeginAnywhere) {
  for (const KernelQuery& query : queries({.causal = true}, DType::kBFloat16)) EXPECT_EQ(expect_as_on_cpu(query, 8), 0);
}

TEST(CudnnAttention, IsForWhatItHas) {
  const auto taken = [](const KernelQuery& query) {
    return std::string(table().get(query.op, DeviceKind::kCuda).prepare(query, {})->library()) == "cuDNN";
  };
  for (size_t i = 0; i < 2; ++i) {  // forward, backward
    const auto of = [&](const Case& c, DType dtype, bool deterministic) { return queries(c, dtype, deterministic)[i]; };
    EXPECT_TRUE(taken(of(kPlain, DType::kFloat16, false)));
    EXPECT_FALSE(taken(of(kPlain, DType::kFloat16, true)));
    EXPECT_FALSE(taken(of(kPlain, DType::kFloat32, false)));
    EXPECT_FALSE(taken(of({.width = 20}, DType::kFloat16, false)));
    EXPECT_FALSE(taken(of({.width = 264}, DType::kFloat16, false)));
    KernelQuery strided = of(kPlain, DType::kFloat16, false);
    strided.inputs[1].strides[2] += 1;
    EXPECT_FALSE(taken(strided));
    KernelQuery masked = of(kPlain, DType::kFloat16, false);
    masked.inputs.push_back(TensorSpec::contiguous({DType::kBool, {2, 2, 5, 5}}));
    EXPECT_FALSE(taken(masked));
    KernelQuery limited = of(kPlain, DType::kFloat16, false);
    limited.attrs.emplace_back(plan::kWorkspaceLimit, int64_t{130});
    EXPECT_FALSE(taken(limited));
  }
  fake().set_most_operations(0);
  EXPECT_FALSE(taken(queries(kPlain, DType::kFloat16)[1]));
  fake().set_most_operations(8);
}

TEST_F(CudnnLibrary, HasAPlanForAttention) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const bool causal : {false, true}) {
      std::vector<Case> all = cases();
      for (const int64_t width : {8, 40, 64, 80, 96, 128, 256})
        all.push_back({12, 12, 1024, 1024, width, width, causal, width != 8});
      all.push_back({12, 4, 512, 640, 64, 64, causal, true});
      for (const Case& c : all) {
        for (const KernelQuery& query : queries(c, dtype)) {
          EXPECT_TRUE(cudnn_attention_plan(maker, {.properties = &h100}, query))
              << query.op << " " << query.inputs[1].shape.str() << " " << query.inputs[2].shape.str();
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
