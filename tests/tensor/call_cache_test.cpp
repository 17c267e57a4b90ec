#include "tensor/call_cache.h"

#include "kernels/kernel_cache.h"
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

// A table of the test's own engine: others must not see what it replaces.
class OwnEngine : public testing::Test {
 protected:
  Engine engine_{{.cores = 1}};
  EagerExecutor eager_{engine_};
  ExecutorScope scope_{eager_};
};

TEST_F(OwnEngine, CallsFindReplacedKernels) {
  const Tensor x = tensor({2}, {1, 2});
  const auto minus = [&] { return static_cast<const float*>(Tensor(ops::neg(x)).read())[1]; };
  EXPECT_EQ(minus(), -2);
  KernelDef def = engine_.kernels().get("neg", DeviceKind::kCpu);
  def.prepare = [copy = engine_.kernels().get("copy", DeviceKind::kCpu).prepare](
                    const plan::KernelQuery& query, const PrepareContext& context) { return copy(query, context); };
  engine_.kernels().replace(DeviceKind::kCpu, def);
  EXPECT_EQ(minus(), 2);
}

TEST_F(OwnEngine, ExecutorsOfAnEngineShareKernels) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  static_cast<void>(ops::exp(x));
  const KernelCache::Stats before = engine_.kernel_cache().stats();
  EagerExecutor second(engine_);
  const ExecutorScope scope(second);
  static_cast<void>(ops::exp(x));
  static_cast<void>(ops::exp(x));  // by the call cache, which asks nobody
  const KernelCache::Stats after = engine_.kernel_cache().stats();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.hits, before.hits + 1);
}

}  // namespace
}  // namespace sluice::test
