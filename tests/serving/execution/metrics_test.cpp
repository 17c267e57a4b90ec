// Tests the page of metrics after a known number of requests: each counter by Triton's name and meaning.
#include "serving/execution/metrics.h"

#include <sstream>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

class MetricsTest : public DoorTest {
 protected:
  // The value behind a name and, where it is given, a reason.
  static double value(const Executor& executor, const std::string& name, const std::string& reason = "") {
    const std::string page = metrics_text({{executor.statistics(), executor.pending(), executor.failures()}});
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name + "{") &&
          (reason.empty() || line.find("reason=\"" + reason + "\"") != std::string::npos))
        return std::stod(line.substr(line.rfind(' ')));
    }
    ADD_FAILURE() << name << " is not in\n" << page;
    return -1;
  }
  static constexpr const char* kDurations[] = {
      "nv_inference_queue_duration_us", "nv_inference_compute_input_duration_us",
      "nv_inference_compute_infer_duration_us", "nv_inference_compute_output_duration_us"};
};

TEST_F(MetricsTest, CountersMoveAsTheyMeanAfterAHundredRequests) {
  options_.max_queue_size = 3;
  const auto executor = make(bundle("door4", door(4)), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [1] } output { name: "y" data_type: TYPE_FP32 dims: [1] }
    dynamic_batching { })");
  for (const char* name : {"nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count",
                           "nv_inference_request_duration_us", "nv_inference_pending_request_count"})
    EXPECT_EQ(value(*executor, name), 0) << name;
  // 85 requests of two rows each, one after another: one execution each.
  for (int i = 0; i < 85; ++i)
    EXPECT_EQ(Call(*executor, request(floats("x", {2, 1}, {0.5f, 0.25f}))).floats(), (Floats{0.5f, 0.25f}));
  // 5 that contradict the model, 3 whose step fails.
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(Call(*executor, request(floats("x", {1, 2}, {1, 2}))).code(), Code::kInvalidArgument);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call(*executor, at_door(3)).code(), Code::kInternal);
  // One is inside, three wait, of which two are cancelled; three find no place.
  const Call inside(*executor, at_door(1));
  EXPECT_EQ(entered(), 1);
  const Call waits(*executor, at_door(0.5)), one(*executor, at_door(0.5)), other(*executor, at_door(0.5));
  EXPECT_EQ(value(*executor, "nv_inference_pending_request_count"), 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call(*executor, at_door(0.5)).code(), Code::kOverloaded);
  one.cancel();
  other.cancel();
  EXPECT_EQ(one.code(), Code::kCancelled);
  EXPECT_EQ(other.code(), Code::kCancelled);
  open_door();
  EXPECT_EQ(inside.floats(), Floats{1});
  EXPECT_EQ(waits.floats(), Floats{0.5});

  EXPECT_EQ(value(*executor, "nv_inference_request_success"), 87);
  EXPECT_EQ(value(*executor, "nv_inference_request_failure", "OTHER"), 5);
  EXPECT_EQ(value(*executor, "nv_inference_request_failure", "BACKEND"), 3);
  EXPECT_EQ(value(*executor, "nv_inference_request_failure", "REJECTED"), 3);
  EXPECT_EQ(value(*executor, "nv_inference_request_failure", "CANCELED"), 2);  // 100 in all
  EXPECT_EQ(value(*executor, "nv_inference_count"), 85 * 2 + 2);               // rows
  EXPECT_EQ(value(*executor, "nv_inference_exec_count"), 87);
  EXPECT_EQ(value(*executor, "nv_inference_pending_request_count"), 0);
  EXPECT_GT(value(*executor, "nv_model_memory_bytes"), 0);
  // Parts of the whole, each rounded down to a microsecond.
  double parts = 0;
  for (const char* name : kDurations) parts += value(*executor, name);
  EXPECT_LE(parts, value(*executor, "nv_inference_request_duration_us") + 4);
  EXPECT_GT(value(*executor, "nv_inference_queue_duration_us"), 0);  // of the one that waited
  EXPECT_EQ(value(*executor, "nv_cache_num_hits_per_model"), 0);
}

TEST_F(MetricsTest, SummariesAndHistogramsAreThereWhereTheyAreAskedFor) {
  const auto page = [&](const Executor& executor) {
    return metrics_text({{executor.statistics(), executor.pending(), executor.failures(), executor.latencies()}},
                        options_.metrics);
  };
  const std::string config = R"(
    input { name: "x" data_type: TYPE_FP32 dims: [1, 3] } output { name: "y" data_type: TYPE_FP32 dims: [1, 3] } )";
  const auto plain = make(bundle("d1", doubling(1)), config);
  EXPECT_EQ(page(*plain).find("summary"), std::string::npos);
  EXPECT_EQ(page(*plain).find("histogram"), std::string::npos);
  options_.metrics.summaries = options_.metrics.histograms = true;
  options_.metrics.counters = false;
  options_.metrics.quantiles = {0, 0.5, 1};
  const auto executor = make(bundle("d1", doubling(1)), config + R"(model_metrics { metric_control {
    metric_identifier { family: "nv_inference_first_response_histogram_ms" }
    histogram_options { buckets: [0.000001, 1e6] } } })");
  const std::string labels = R"({model="m",version="1")", histogram = "nv_inference_first_response_histogram_ms";
  EXPECT_NE(page(*executor).find("nv_inference_request_summary_us" + labels + ",quantile=\"0.5\"} NaN\n"),
            std::string::npos);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call(*executor, request(floats("x", {1, 3}, {1, 2, 3}))).error(), "");
  EXPECT_EQ(Call(*executor, request(floats("x", {1, 2}, {1, 2}))).code(),
            Code::kInvalidArgument);  // it has no response
  const std::string text = page(*executor);
  for (const char* what : {"request", "queue", "compute_input", "compute_infer", "compute_output"}) {
    const std::string name = std::string("nv_inference_") + what + "_summary_us";
    EXPECT_NE(text.find("# TYPE " + name + " summary\n"), std::string::npos);
    EXPECT_NE(text.find(name + "_count" + labels + "} 3\n"), std::string::npos) << text;
    EXPECT_NE(text.find(name + "_sum" + labels + "} "), std::string::npos);
    for (const char* quantile : {"0", "0.5", "1"})
      EXPECT_NE(text.find(name + labels + ",quantile=\"" + quantile + "\"} "), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("nv_cache_hit_summary_us" + labels), std::string::npos);  // it has no cache
  EXPECT_EQ(text.find("nv_inference_request_duration_us"), std::string::npos);
  EXPECT_NE(text.find(histogram + "_count" + labels + "} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find(histogram + "_bucket" + labels + ",le=\"1e-06\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find(histogram + "_bucket" + labels + ",le=\"1000000\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find(histogram + "_bucket" + labels + ",le=\"+Inf\"} 3\n"), std::string::npos) << text;
}

TEST_F(MetricsTest, BoundsThatAreNoneAreRefused) {
  const auto refused = [&](const std::string& family, const std::string& buckets) {
    return refusal(bundle("d1", doubling(1)),
                   "input { name: 'x' data_type: TYPE_FP32 dims: [1, 3] } output { name: 'y' "
                   "data_type: TYPE_FP32 dims: [1, 3] } model_metrics { metric_control { "
                   "metric_identifier { family: '" +
                       family +
                       "' } histogram_options { "
                       "buckets: [" +
                       buckets + "] } } }");
  };
  const std::string known = "nv_inference_first_response_histogram_ms";
  EXPECT_EQ(refused("x", "1"), "model 'm': model_metrics: family 'x'; only " + known + " can be controlled");
  for (const char* buckets : {"", "1, 1", "2, 1", "nan", "1, inf"})
    EXPECT_NE(refused(known, buckets).find("buckets must be bounds in milliseconds"), std::string::npos) << buckets;
}

TEST_F(MetricsTest, HitsOfTheCacheAreRequestsWithoutInference) {
  options_.response_cache_bytes = 1 << 20;
  const auto executor = make(bundle("d1", doubling(1)), R"(
    input { name: "x" data_type: TYPE_FP32 dims: [1, 3] } output { name: "y" data_type: TYPE_FP32 dims: [1, 3] }
    response_cache { enable: true })");
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(Call(*executor, request(floats("x", {1, 3}, {1, 2, 3}))).floats(), (Floats{2, 4, 6}));
  EXPECT_EQ(value(*executor, "nv_inference_request_success"), 10);
  EXPECT_EQ(value(*executor, "nv_inference_count"), 1);
  EXPECT_EQ(value(*executor, "nv_inference_exec_count"), 1);
  EXPECT_EQ(value(*executor, "nv_cache_num_hits_per_model"), 9);
  EXPECT_EQ(value(*executor, "nv_cache_num_misses_per_model"), 1);
}

}  // namespace
}  // namespace sluice::serving::test
