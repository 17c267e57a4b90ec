// Storms of random requests and cancels: everyone is answered exactly once, rightly, and nothing is left.
#include <random>
#include <thread>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

class StormTest : public ExecutionTest {
 protected:
  StormTest() : ExecutionTest(2) {}
  struct Seen {
    std::atomic<int> right{0}, refused{0}, cancelled{0}, late{0}, wrong{0}, twice{0};
    int all() const { return right + refused + cancelled + late + wrong; }
  };

  // One client: sends, forgets, cancels.
  void storm(Executor& executor, unsigned seed, int requests, Seen& seen) {
    std::minstd_rand random(seed);
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (int i = 0; i < requests; ++i) {
      const auto rows = static_cast<int64_t>(random() % 3 + 1);
      Floats x(static_cast<size_t>(rows) * 3);
      for (float& v : x) v = static_cast<float>(random() % 1000);
      InferRequest one = request(floats("x", {rows, 3}, x));
      one.parameters["priority"] = static_cast<uint64_t>(random() % 3);
      if (random() % 4 == 0) one.parameters["timeout"] = static_cast<int64_t>(random() % 300 + 1);
      const auto answers = std::make_shared<std::atomic<int>>(0);
      handles.push_back(executor.infer(std::move(one), [&seen, x, answers](InferResponse response, bool last) {
        if (++*answers > 1 || !last) ++seen.twice;
        if (!response.error) {
          Floats wanted = x;
          for (float& v : wanted) v *= 2;
          ++(values_of(response.outputs.at(0)) == wanted ? seen.right : seen.wrong);
          return;
        }
        switch (response.error->code()) {
          case Code::kOverloaded: ++seen.refused; break;
          case Code::kCancelled: ++seen.cancelled; break;
          case Code::kTimeout: ++seen.late; break;
          default: ++seen.wrong; break;
        }
      }));
      if (random() % 5 == 0) handles[random() % handles.size()]->cancel();
      if (random() % 7 == 0) std::this_thread::yield();
    }
  }

  void run(const std::string& text, unsigned seed, bool in_the_end_gone) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::shared_ptr<Executor> executor = make(family("d", doubling, {1, 2, 4, 8}, 3), text);
    Seen seen;
    constexpr int kRequests = 150, kClients = 3;
    std::vector<std::thread> clients;
    for (unsigned c = 0; c < kClients; ++c)
      clients.emplace_back([&, c] { storm(*executor, seed * 17 + c + 1, kRequests, seen); });
    for (std::thread& client : clients) client.join();
    if (in_the_end_gone) {
      executor = nullptr;  // what is under way is answered as it ends
      EXPECT_EQ(seen.all(), kRequests * kClients);
      EXPECT_EQ(seen.twice, 0);
      return;
    }
    EXPECT_TRUE(executor->drain(std::chrono::minutes(5)));
    EXPECT_EQ(seen.all(), kRequests * kClients);
    EXPECT_EQ(seen.wrong, 0);
    EXPECT_EQ(seen.twice, 0);
    EXPECT_GT(seen.right, 0);
    EXPECT_EQ(executor->pending(), 0u);
    // Cancelled ones may have run, and then count as failed.
    const inference::ModelStatistics stats = executor->statistics();
    EXPECT_EQ(stats.inference_stats().success().count(), static_cast<uint64_t>(seen.right));
    EXPECT_EQ(stats.inference_stats().fail().count(), static_cast<uint64_t>(seen.all() - seen.right));
    uint64_t executions = 0;
    for (const auto& batch : stats.batch_stats()) executions += batch.compute_infer().count();
    EXPECT_EQ(executions, stats.execution_count());
  }
};

constexpr const char* kStorm = R"(max_batch_size: 8
  input { name: "x" data_type: TYPE_FP32 dims: [3] }
  output { name: "y" data_type: TYPE_FP32 dims: [3] }
  dynamic_batching { priority_levels: 2 default_priority_level: 1 default_queue_policy { allow_timeout_override: true max_queue_size: 20 } )";

TEST_F(StormTest, EveryRequestIsAnsweredOnce) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const std::string more[] = {
        "}", "preserve_ordering: true }", "preferred_batch_size: [4] max_queue_delay_microseconds: 200 }",
        "preserve_ordering: true max_queue_delay_microseconds: 100 } instance_group { count: 2 }"};
    run(kStorm + more[seed % 4], seed, false);
  }
}

TEST_F(StormTest, AlsoWhenItEndsMeanwhile) {
  for (unsigned seed = 100; seed < 108; ++seed)
    run(std::string(kStorm) + (seed % 2 == 0 ? "}" : "preserve_ordering: true } instance_group { count: 2 }"), seed,
        true);
}

TEST_F(StormTest, OverloadIsRefusedAtOnceAndTheRestIsServed) {
  const auto executor = make(family("d", doubling, {1, 2, 4, 8}, 3), R"(max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] }
    dynamic_batching { default_queue_policy { max_queue_size: 4 } })");
  std::atomic<int> right{0}, refused{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        executor->infer(request(floats("x", {1, 3}, {1, 2, 3})), [&](InferResponse response, bool) {
          ++(response.error ? refused : right);
          if (response.error && response.error->code() == Code::kOverloaded) {
            EXPECT_TRUE(response.error->retry_after());
          }
        });
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(executor->drain(std::chrono::minutes(5)));
  EXPECT_EQ(right + refused, 2000);
  EXPECT_GT(right, 0);
  EXPECT_LE(executor->statistics().execution_count(), static_cast<uint64_t>(right));
}

}  // namespace
}  // namespace sluice::serving::test
