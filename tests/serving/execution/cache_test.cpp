// Responses from memory.
#include "serving/execution/cache.h"

#include "fixture.h"

namespace sluice::serving::test {
namespace {

constexpr const char* kCached = R"(
  input { name: "x" data_type: TYPE_FP32 dims: [2, 3] }
  output { name: "y" data_type: TYPE_FP32 dims: [2, 3] }
  response_cache { enable: true })";

class CacheTest : public ExecutionTest {
 protected:
  CacheTest() { options_.response_cache_bytes = 100000; }
  static InferRequest of(float x) { return request(floats("x", {2, 3}, Floats(6, x))); }
};

TEST_F(CacheTest, EqualRequestsAreAnsweredFromMemory) {
  const auto executor = make(bundle("b", doubling(2)), kCached);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Call(*executor, of(4)).floats(), Floats(6, 8));
  EXPECT_EQ(Call(*executor, of(5)).floats(), Floats(6, 10));
  const inference::ModelStatistics stats = executor->statistics();
  EXPECT_EQ(stats.execution_count(), 2u);
  EXPECT_EQ(stats.inference_stats().cache_hit().count(), 9u);
  EXPECT_EQ(stats.inference_stats().cache_miss().count(), 2u);
  EXPECT_EQ(stats.inference_stats().success().count(), 11u);
}

TEST_F(CacheTest, OtherOutputsAndOtherExecutorsAreOtherResponses) {
  const Machine machine{engine_, actors_, options_, make_shared_resources(options_)};
  ExecutorSpec spec;
  spec.config = config(kCached);
  spec.bundle = bundle("b", doubling(2));
  const auto first = make_executor(machine, spec), second = make_executor(machine, spec);
  for (const auto& executor : {first, second}) {
    EXPECT_EQ(Call(*executor, of(4)).floats(), Floats(6, 8));
    InferRequest named = of(4);
    named.outputs.push_back({"y", 0, {}});
    EXPECT_EQ(Call(*executor, std::move(named)).floats(), Floats(6, 8));
    EXPECT_EQ(executor->statistics().execution_count(), 2u);
  }
}

TEST_F(CacheTest, WithoutMemoryItIsRefused) {
  options_.response_cache_bytes = 0;
  EXPECT_EQ(refusal(bundle("b", doubling(2)), kCached),
            "model 'm': response_cache: the server has none; give it bytes for one");
}

TEST(ResponseCache, TheLeastRecentlyUsedGoesFirst) {
  ResponseCache cache(5000);
  const auto outputs = std::make_shared<std::vector<Tensor>>();
  const auto key = [](int i) { return std::string(700, 'k') + std::to_string(i); };
  for (int i = 0; i < 5; ++i) cache.insert(key(i), outputs);
  EXPECT_EQ(cache.size(), 5u);
  EXPECT_NE(cache.find(key(0)), nullptr);
  cache.insert(key(5), outputs);
  EXPECT_LE(cache.bytes(), cache.limit());
  EXPECT_EQ(cache.find(key(1)), nullptr);
  EXPECT_NE(cache.find(key(0)), nullptr);
  EXPECT_NE(cache.find(key(5)), nullptr);
  cache.insert(std::string(6000, 'x'), outputs);  // larger than all
  EXPECT_EQ(cache.size(), 5u);
  cache.insert(key(0), outputs);  // again
  EXPECT_EQ(cache.size(), 5u);
  cache.forget("kk");
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.bytes(), 0u);
}

}  // namespace
}  // namespace sluice::serving::test
