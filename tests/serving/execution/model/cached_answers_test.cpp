// Answers that are kept for equal requests, by one executor.
#include "serving/execution/model/cached_answers.h"

#include <gtest/gtest.h>

#include "serving/execution/fixture.h"
#include "support.h"

namespace sluice::serving::test {
namespace {

inference::ModelConfig caching() { return model_config("response_cache { enable: true }"); }

JobPtr asking(float x) {
  auto job = std::make_shared<Job>();
  job->request.model = "m";
  job->request.inputs.push_back(floats("x", {1}, {x}));
  return job;
}
std::vector<Tensor> answer_of(float y) { return {floats("y", {1}, {y})}; }

TEST(CachedAnswers, AreOffUnlessTheConfigSaysSo) {
  ResponseCache cache(10000);
  CachedAnswers off(model_config(), cache);
  EXPECT_FALSE(off.on());
  ResponseCache none(0);
  CachedAnswers(model_config(), none).check("model 'm'");
  EXPECT_EQ(what_of([&] { CachedAnswers(caching(), none).check("model 'm'"); }),
            "model 'm': response_cache: the server has none; give it bytes for one");
  CachedAnswers(caching(), cache).check("model 'm'");
}

TEST(CachedAnswers, AMissTellsTheJobItsKeyAndCountsIt) {
  ResponseCache cache(10000);
  CachedAnswers cached(caching(), cache);
  const JobPtr job = asking(1);
  job->request.memory = std::make_shared<MemoryShare>(std::make_shared<MemoryBudget>(1000), 1000);
  EXPECT_EQ(cached.find(*job), nullptr);
  EXPECT_NE(job->key, "");
  EXPECT_EQ(job->own.bytes(), sizeof(float)) << "the key has the bytes of the inputs";
  cached.keep(*job, answer_of(2), false);
  const JobPtr again = asking(1), other = asking(3);
  const ResponseCache::Outputs found = cached.find(*again);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(floats_in(found->at(0)), std::vector<float>{2});
  EXPECT_EQ(again->key, "");
  EXPECT_EQ(cached.find(*other), nullptr);
}

TEST(CachedAnswers, AJobWithoutAKeyIsNotKept) {
  ResponseCache cache(10000);
  CachedAnswers cached(caching(), cache);
  cached.keep(*asking(1), answer_of(2), false);
  EXPECT_EQ(cache.size(), 0u);
}

TEST(CachedAnswers, MemoryThatIsSharedIsCopied) {
  ResponseCache cache(10000);
  CachedAnswers cached(caching(), cache);
  for (const bool shares : {false, true}) {
    const JobPtr job = asking(shares ? 1 : 2);
    cached.find(*job);
    const std::vector<Tensor> given = answer_of(5);
    cached.keep(*job, given, shares);
    const JobPtr again = asking(shares ? 1 : 2);
    const Tensor& kept = cached.find(*again)->at(0);
    EXPECT_EQ(kept.data != given[0].data, shares);
    EXPECT_EQ(floats_in(kept), std::vector<float>{5});
  }
}

TEST(CachedAnswers, EachExecutorHasItsOwnWhichLeaveWithIt) {
  ResponseCache cache(10000);
  CachedAnswers stays(caching(), cache);
  const JobPtr job = asking(1);
  stays.find(*job);
  stays.keep(*job, answer_of(2), false);
  {
    CachedAnswers goes(caching(), cache);
    const JobPtr mine = asking(1);
    EXPECT_EQ(goes.find(*mine), nullptr);
    goes.keep(*mine, answer_of(3), false);
    EXPECT_EQ(cache.size(), 2u);
  }
  EXPECT_EQ(cache.size(), 1u);
  const JobPtr again = asking(1);
  EXPECT_EQ(floats_in(stays.find(*again)->at(0)), std::vector<float>{2});
}

}  // namespace
}  // namespace sluice::serving::test
