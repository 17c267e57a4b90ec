// Tests how sluice-bench takes the times that it reads, with clocks that the tests turn.
#include "tools/sluice_bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tools/sluice_bench/report.h"

namespace sluice::bench {
namespace {

// Each call takes so many nanoseconds, in turn; the processor works half of them.
struct Clock {
  int64_t now = 0;
  std::vector<int64_t> costs;
  int64_t calls = 0;

  Case work() {
    return {"net/run", [this](int64_t n) {
              for (int64_t i = 0; i < n; ++i, ++calls) now += costs[static_cast<size_t>(calls) % costs.size()];
            }};
  }
  MeasureOptions options(double min_seconds, int repetitions) {
    return {min_seconds, repetitions, [this] { return now; }, [this] { return now / 2; }};
  }
};

TEST(Measure, CallsUntilTheyTakeLongEnough) {
  Clock clock{0, {1000}};
  const std::vector<Measured> rows = measure(clock.work(), clock.options(1e-3, 1));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_GE(rows[0].iterations, 1000);
  EXPECT_LT(rows[0].iterations, 3000);
  EXPECT_DOUBLE_EQ(rows[0].real_ns, 1000);
  EXPECT_DOUBLE_EQ(rows[0].cpu_ns, 500);
  EXPECT_DOUBLE_EQ(rows[0].items_per_second, 1e6);
}

TEST(Measure, ALongCallIsMadeOnceToTryAndOnceToMeasure) {
  Clock clock{0, {2'000'000'000}};
  EXPECT_EQ(measure(clock.work(), clock.options(1, 1))[0].iterations, 1);
  EXPECT_EQ(clock.calls, 2);
}

TEST(Measure, SeveralHaveMeanMedianAndSpread) {
  Clock clock{0, {9, 1, 2, 6}};  // the first is a try
  const std::vector<Measured> rows = measure(clock.work(), clock.options(1e-9, 3));
  ASSERT_EQ(rows.size(), 7U);
  const auto named = [&](const char* name) {
    for (const Measured& row : rows)
      if (row.aggregate == name && !row.aggregate.empty()) return row.real_ns;
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(named("mean"), 3);
  EXPECT_DOUBLE_EQ(named("median"), 2);
  EXPECT_NEAR(named("stddev"), 2.6457513, 1e-6);
  EXPECT_NEAR(named("cv"), 0.8819171, 1e-6);
}

TEST(Report, JsonHasWhatGoogleBenchmarkWrites) {
  Clock clock{0, {9, 1000, 2000, 6000}};
  const auto rows = measure(clock.work(), clock.options(1e-9, 3));
  const auto all = boost::json::parse(json_text({"2024-01-01T00:00:00+00:00", "x", 2, {0.5}}, rows, TimeUnit::kUs));
  EXPECT_EQ(all.at("context").at("num_cpus").as_int64(), 2);
  const boost::json::array& benchmarks = all.at("benchmarks").as_array();
  ASSERT_EQ(benchmarks.size(), 7U);
  const boost::json::object& run = benchmarks[1].as_object();
  EXPECT_EQ(run.at("name").as_string(), "net/run");
  EXPECT_EQ(run.at("run_type").as_string(), "iteration");
  EXPECT_EQ(run.at("repetition_index").as_int64(), 1);
  EXPECT_EQ(run.at("time_unit").as_string(), "us");
  EXPECT_DOUBLE_EQ(run.at("real_time").as_double(), 2);
  EXPECT_DOUBLE_EQ(run.at("cpu_time").as_double(), 1);
  const boost::json::object& median = benchmarks[4].as_object();
  EXPECT_EQ(median.at("name").as_string(), "net/run_median");
  EXPECT_EQ(median.at("run_name").as_string(), "net/run");
  EXPECT_EQ(median.at("aggregate_name").as_string(), "median");
  EXPECT_DOUBLE_EQ(median.at("real_time").as_double(), 2);
  EXPECT_EQ(benchmarks[6].at("aggregate_unit").as_string(), "percentage");
}

TEST(Report, TablesAndCsv) {
  Clock clock{0, {12340}};
  const auto rows = measure(clock.work(), clock.options(1e-9, 1));
  const std::vector<std::string> names = {"net/run"};
  EXPECT_EQ(console_row(rows[0], TimeUnit::kUs, names),
            "net/run             12.34 us      6.170 us          1 items_per_second=81.04k/s\n");
  EXPECT_THAT(console_head(names), testing::HasSubstr("\nBenchmark               Time           CPU Iterations"));
  EXPECT_THAT(csv_text(rows, TimeUnit::kNs), testing::EndsWith("\"net/run\",1,12340,6170,ns,,81037.3,,,\n"));
  EXPECT_THROW(parse_time_unit("h"), std::invalid_argument);
}

}  // namespace
}  // namespace sluice::bench
