// How many requests share a step is what their rate and the time of steps make of it: the batcher itself, in virtual
// time, against the forecast of sluice-perf.
#include "tools/sluice_perf/forecast.h"

#include <random>

#include "fixture.h"
#include "serving/execution/batcher.h"

namespace sluice::serving::test {
namespace {

constexpr int64_t kMostRows = 8;
double seconds_of(int64_t rows) { return 1e-3 + 2e-4 * static_cast<double>(rows); }

struct Seen {
  double mean = 0;
  std::vector<double> share = std::vector<double>(kMostRows + 1, 0);  // of steps, by their rows
};

// One instance that takes what waits as soon as it has nothing to do; requests of one row come by chance.
Seen served(double rate, int requests, unsigned seed) {
  inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("max_batch_size: 8 dynamic_batching { }", &config));
  RequestQueue queue(config, 1u << 20);
  const Batcher batcher(config, kMostRows);
  std::mt19937_64 random(seed);
  const auto gap = [&] {  // of an exponential distribution
    return -std::log1p(-static_cast<double>(random() >> 11) / 9007199254740992.0) / rate;
  };
  const auto at = [](double seconds) {
    return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  };
  Seen seen;
  double now = 0, next = gap();
  int steps = 0, rows = 0;
  for (int come = 0; come < requests || !queue.empty();) {
    while (come < requests && (next <= now || queue.empty())) {
      now = std::max(now, next);
      const auto job = std::make_shared<Job>();
      job->queued = at(next);
      EXPECT_TRUE(queue.push(job));
      ++come;
      next += gap();
    }
    const BatchChoice choice = batcher.choose(queue, at(now), true);
    EXPECT_GT(choice.jobs, 0u);
    if (choice.jobs == 0) break;
    for (size_t i = 0; i < choice.jobs; ++i) queue.pop();
    ++steps;
    rows += static_cast<int>(choice.rows);
    ++seen.share[static_cast<size_t>(choice.rows)];
    now += seconds_of(choice.rows);
  }
  for (double& share : seen.share) share /= steps;
  seen.mean = static_cast<double>(rows) / steps;
  return seen;
}

TEST(BatchForecastTest, IsWhatTheBatcherMakesOfPoissonArrivals) {
  perf::StepTimes times;
  for (int64_t rows = 1; rows <= kMostRows; ++rows) times.add(rows, seconds_of(rows), 1);
  const double most = static_cast<double>(kMostRows) / seconds_of(kMostRows);
  double before = 0;
  for (const double load : {0.2, 0.5, 0.75, 0.9}) {
    const perf::BatchForecast forecast = perf::forecast_batches(load * most, kMostRows, times);
    const Seen seen = served(load * most, 40000, 7);
    EXPECT_NEAR(forecast.mean_rows / seen.mean, 1, 0.05) << load;  // 0.15 is asked for
    double apart = 0;
    for (size_t b = 1; b <= kMostRows; ++b) apart += std::abs(forecast.share_of_rows[b] - seen.share[b]) / 2;
    EXPECT_LT(apart, 0.05) << load;
    EXPECT_GT(forecast.mean_rows, before);  // it grows with the rate
    before = forecast.mean_rows;
    EXPECT_FALSE(forecast.saturated);
  }
  EXPECT_TRUE(perf::forecast_batches(1.1 * most, kMostRows, times).saturated);
}

}  // namespace
}  // namespace sluice::serving::test
