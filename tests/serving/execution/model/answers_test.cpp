// Answers: each is given once, in order where that is asked for, and waited for.
#include "serving/execution/model/answers.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace sluice::serving::test {
namespace {

class AnswersTest : public ::testing::Test {
 protected:
  // A request that is expected; its answer's id goes to `told`.
  JobPtr expected(Answers& answers, const std::string& id) {
    const auto job = std::make_shared<Job>();
    job->request.id = id;
    job->respond = [this](InferResponse response, bool last) {
      EXPECT_TRUE(last);
      told.push_back(response.id);
      if (response.error) errors.push_back(response.error->what());
    };
    answers.expect(1);
    return job;
  }
  static void deliver(Answers& answers, const JobPtr& job) {
    EXPECT_FALSE(job->answered.exchange(true));
    answers.deliver(job, answers.blank(*job));
  }
  Answers made(bool in_order) { return {"m", "3", in_order, statistics}; }

  Statistics statistics{model_config(), LatencyOptions()};
  std::vector<std::string> told, errors;
};

TEST_F(AnswersTest, ABlankOneNamesTheModelAndTheRequest) {
  Answers answers = made(false);
  const InferResponse blank = answers.blank(*expected(answers, "a"));
  EXPECT_EQ(blank.model, "m");
  EXPECT_EQ(blank.version, "3");
  EXPECT_EQ(blank.id, "a");
  EXPECT_FALSE(blank.error);
}

TEST_F(AnswersTest, AnErrorIsGivenOnceAndCounted) {
  Answers answers = made(false);
  const JobPtr job = expected(answers, "a");
  answers.fail(job, Error(Code::kUnavailable, "first"));
  answers.fail(job, Error(Code::kUnavailable, "second"));
  EXPECT_EQ(errors, std::vector<std::string>{"first"});
  EXPECT_EQ(statistics.read().inference_stats().fail().count(), 1u);
  EXPECT_EQ(answers.pending(), 0u);
}

TEST_F(AnswersTest, AnErrorOfAPartIsNoFailedRequest) {
  Answers answers = made(false);
  const JobPtr part = expected(answers, "a");
  part->part = true;
  answers.fail(part, Error(Code::kInternal, "broken"));
  EXPECT_EQ(errors, std::vector<std::string>{"broken"});
  EXPECT_EQ(statistics.read().inference_stats().fail().count(), 0u);
}

TEST_F(AnswersTest, WithoutAnOrderTheyAreGivenAtOnce) {
  Answers answers = made(false);
  const JobPtr a = expected(answers, "a"), b = expected(answers, "b");
  for (const JobPtr& job : {a, b}) answers.arrived(*job);
  deliver(answers, b);
  EXPECT_EQ(told, std::vector<std::string>{"b"});
}

TEST_F(AnswersTest, InOrderTheyComeAsTheRequestsArrived) {
  Answers answers = made(true);
  const JobPtr a = expected(answers, "a"), b = expected(answers, "b"), c = expected(answers, "c");
  for (const JobPtr& job : {a, b, c}) answers.arrived(*job);
  deliver(answers, c);
  answers.fail(b, Error(Code::kTimeout, "late"));
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(answers.pending(), 3u) << "an answer that waits for its turn is not given yet";
  deliver(answers, a);
  EXPECT_EQ(told, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(answers.pending(), 0u);
}

TEST_F(AnswersTest, InOrderARequestThatNeverArrivedWaitsForNobody) {
  Answers answers = made(true);
  const JobPtr first = expected(answers, "first"), refused = expected(answers, "refused");
  answers.arrived(*first);
  answers.fail(refused, Error(Code::kOverloaded, "full"));
  EXPECT_EQ(told, std::vector<std::string>{"refused"});
}

TEST_F(AnswersTest, InOrderACallerThatIsToldMayBringTheNextAnswer) {
  Answers answers = made(true);
  const JobPtr a = expected(answers, "a"), b = expected(answers, "b");
  for (const JobPtr& job : {a, b}) answers.arrived(*job);
  const Respond tell = a->respond;
  a->respond = [&](InferResponse response, bool last) {
    deliver(answers, b);
    EXPECT_TRUE(told.empty()) << "one answer after the other";
    tell(std::move(response), last);
  };
  deliver(answers, a);
  EXPECT_EQ(told, (std::vector<std::string>{"a", "b"}));
}

TEST_F(AnswersTest, ACallerThatIsBeingToldIsWaitedForAndNotPending) {
  Answers answers = made(false);
  const JobPtr job = expected(answers, "a");
  EXPECT_EQ(answers.pending(), 1u);
  job->respond = [&](InferResponse, bool) {
    EXPECT_EQ(answers.pending(), 0u);
    EXPECT_FALSE(answers.wait_until(Clock::now()));
  };
  deliver(answers, job);
  EXPECT_TRUE(answers.wait_until(Clock::now()));
}

TEST_F(AnswersTest, TheLastAnswerWakesWhoeverWaits) {
  Answers answers = made(false);
  const JobPtr a = expected(answers, "a"), b = expected(answers, "b");
  std::thread waiting([&] { EXPECT_TRUE(answers.wait_until(Clock::now() + std::chrono::hours(1))); });
  deliver(answers, a);
  EXPECT_FALSE(answers.wait_until(Clock::now()));
  deliver(answers, b);
  waiting.join();
}

TEST_F(AnswersTest, AnAnswerLetsGoOfWhatTheRequestHeld) {
  Answers answers = made(false);
  const JobPtr job = expected(answers, "a");
  const auto share = std::make_shared<MemoryShare>(std::make_shared<MemoryBudget>(100), 100);
  job->own = Held(share, 60);
  deliver(answers, job);
  EXPECT_EQ(share->held(), 0u);
  EXPECT_EQ(job->respond, nullptr);
}

}  // namespace
}  // namespace sluice::serving::test
