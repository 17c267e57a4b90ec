#include "tensor/call_cache.h"

#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

std::shared_ptr<CallPlan> plan_of(const CallKey& key) {
  auto plan = std::make_shared<CallPlan>();
  plan->op = key.op;
  plan->attrs = *key.attrs;
  plan->threads = key.threads;
  plan->kernels = key.kernels;
  for (const TensorSpec* input : key.inputs) {
    plan->present.push_back(input != nullptr);
    plan->inputs.push_back(input ? *input : TensorSpec{});
  }
  return plan;
}

TEST(CallCache, FindsByEveryPartOfTheKey) {
  const OpDef& op = builtin_ops().get("add");
  const TensorSpec a = TensorSpec::contiguous({DType::kFloat32, {2, 3}});
  TensorSpec transposed = a;
  transposed.strides = {1, 2};
  const Attrs none, some{int64_t{1}};
  const TensorSpec* both[] = {&a, &a};
  const TensorSpec* other[] = {&a, &transposed};
  const TensorSpec* absent[] = {&a, nullptr};
  CallCache cache(10);
  const CallKey key{&op, &none, both, {}, 2};
  cache.insert(key.hash(), plan_of(key));
  EXPECT_NE(cache.find(key, key.hash()), nullptr);
  for (const CallKey& miss :
       {CallKey{&op, &some, both, {}, 2}, CallKey{&op, &none, other, {}, 2}, CallKey{&op, &none, absent, {}, 2},
        CallKey{&op, &none, both, {}, 1}, CallKey{&op, &none, both, {}, 2, 1}}) {
    EXPECT_EQ(cache.find(miss, miss.hash()), nullptr);
    EXPECT_EQ(cache.find(miss, key.hash()), nullptr);  // equal hashes are not enough
  }
}

TEST(CallCache, ForgetsTheLeastRecentlyUsed) {
  const OpDef& op = builtin_ops().get("neg");
  const Attrs none;
  CallCache cache(2);
  const auto key = [&](const TensorSpec* const* spec) { return CallKey{&op, &none, {spec, 1}, {}, 1}; };
  const TensorSpec specs[] = {TensorSpec::contiguous({DType::kFloat32, {1}}),
                              TensorSpec::contiguous({DType::kFloat32, {2}}),
                              TensorSpec::contiguous({DType::kFloat32, {3}})};
  const TensorSpec* pointers[] = {&specs[0], &specs[1], &specs[2]};
  for (int i : {0, 1}) cache.insert(key(&pointers[i]).hash(), plan_of(key(&pointers[i])));
  EXPECT_NE(cache.find(key(&pointers[0]), key(&pointers[0]).hash()), nullptr);
  cache.insert(key(&pointers[2]).hash(), plan_of(key(&pointers[2])));
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_NE(cache.find(key(&pointers[0]), key(&pointers[0]).hash()), nullptr);
  EXPECT_EQ(cache.find(key(&pointers[1]), key(&pointers[1]).hash()), nullptr);
}

}  // namespace
}  // namespace sluice::test
