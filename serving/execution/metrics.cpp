#include "serving/execution/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <iterator>

#include "serving/execution/response_times.h"

namespace sluice::serving {

namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string labels_of(const inference::ModelStatistics& model) {
  return fmt::format("model=\"{}\",version=\"{}\"", escaped(model.name()), escaped(model.version()));
}

std::string number(double value) { return std::isnan(value) ? "NaN" : fmt::format("{}", value); }

// The subject of a summary, and where its count and sum are.
struct Summary {
  const char *what, *name, *help;
  const inference::StatisticDuration& (inference::InferStatistics::*of)() const;
};
constexpr Summary kSummaries[] = {
    {"request", "nv_inference_request_summary_us",
     "Summary of inference request duration in microseconds (includes "
     "cached requests)",
     &inference::InferStatistics::success},
    {"queue", "nv_inference_queue_summary_us", "Summary of inference queuing duration in microseconds",
     &inference::InferStatistics::queue},
    {"compute_input", "nv_inference_compute_input_summary_us", "Summary of compute input duration in microseconds",
     &inference::InferStatistics::compute_input},
    {"compute_infer", "nv_inference_compute_infer_summary_us", "Summary of compute inference duration in microseconds",
     &inference::InferStatistics::compute_infer},
    {"compute_output", "nv_inference_compute_output_summary_us",
     "Summary of inference compute output duration in microseconds", &inference::InferStatistics::compute_output},
    {"cache_hit", "nv_cache_hit_summary_us", "Summary of cache hit duration in microseconds",
     &inference::InferStatistics::cache_hit},
    {"cache_miss", "nv_cache_miss_summary_us", "Summary of cache miss duration in microseconds",
     &inference::InferStatistics::cache_miss},
};

void append_summaries(std::string& text, const std::vector<ModelMetrics>& models) {
  for (const Summary& summary : kSummaries) {
    fmt::format_to(std::back_inserter(text), "# HELP {0} {1}\n# TYPE {0} summary\n", summary.name, summary.help);
    for (const ModelMetrics& model : models) {
      const auto found = model.latencies.summaries.find(summary.what);
      if (found == model.latencies.summaries.end()) continue;
      const std::string labels = labels_of(model.statistics);
      const auto& total = (model.statistics.inference_stats().*summary.of)();
      fmt::format_to(std::back_inserter(text), "{0}_count{{{1}}} {2}\n{0}_sum{{{1}}} {3}\n", summary.name, labels,
                     total.count(), total.ns() / 1000);
      for (const auto& [quantile, us] : found->second)
        fmt::format_to(std::back_inserter(text), "{}{{{},quantile=\"{}\"}} {}\n", summary.name, labels, quantile,
                       number(us));
    }
  }
}

void append_histogram(std::string& text, const std::vector<ModelMetrics>& models) {
  fmt::format_to(std::back_inserter(text),
                 "# HELP {0} Duration from request to first response in milliseconds\n# TYPE {0} histogram\n",
                 kFirstResponseMetric);
  for (const ModelMetrics& model : models) {
    if (!model.latencies.first_response) continue;
    const LatencyHistogram& histogram = *model.latencies.first_response;
    const std::string labels = labels_of(model.statistics);
    uint64_t count = 0;
    for (const uint64_t one : histogram.counts) count += one;
    fmt::format_to(std::back_inserter(text), "{0}_count{{{1}}} {2}\n{0}_sum{{{1}}} {3}\n", kFirstResponseMetric, labels,
                   count, histogram.sum_ms);
    uint64_t up_to = 0;
    for (size_t b = 0; b < histogram.counts.size(); ++b)
      fmt::format_to(std::back_inserter(text), "{}_bucket{{{},le=\"{}\"}} {}\n", kFirstResponseMetric, labels,
                     b < histogram.bounds_ms.size() ? fmt::format("{}", histogram.bounds_ms[b]) : "+Inf",
                     up_to += histogram.counts[b]);
  }
}

using Value = std::function<uint64_t(const ModelMetrics& model)>;
using Duration = const inference::StatisticDuration& (inference::InferStatistics::*)() const;

}  // namespace

std::string metrics_text(const std::vector<ModelMetrics>& models, const MetricsOptions& options) {
  std::string text;
  const auto head = [&](const char* name, const char* help, const char* type) {
    fmt::format_to(std::back_inserter(text), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  };
  const auto family = [&](const char* name, const char* help, const char* type, const Value& value) {
    head(name, help, type);
    for (const ModelMetrics& model : models)
      fmt::format_to(std::back_inserter(text), "{}{{{}}} {}\n", name, labels_of(model.statistics), value(model));
  };
  const auto count_of = [&](const char* name, const char* help, Duration duration) {
    family(name, help, "counter",
           [=](const ModelMetrics& m) { return (m.statistics.inference_stats().*duration)().count(); });
  };
  const auto us_of = [&](const char* name, const char* help, Duration duration) {
    if (!options.counters) return;
    family(name, help, "counter",
           [=](const ModelMetrics& m) { return (m.statistics.inference_stats().*duration)().ns() / 1000; });
  };
  using Stats = inference::InferStatistics;
  count_of("nv_inference_request_success", "Number of successful inference requests, all batch sizes", &Stats::success);
  head("nv_inference_request_failure", "Number of failed inference requests, all batch sizes", "counter");
  for (const ModelMetrics& model : models) {
    for (const char* reason : {"REJECTED", "CANCELED", "BACKEND", "OTHER"}) {
      const auto found = model.failures.find(reason);
      fmt::format_to(std::back_inserter(text), "nv_inference_request_failure{{{},reason=\"{}\"}} {}\n",
                     labels_of(model.statistics), reason, found == model.failures.end() ? 0 : found->second);
    }
  }
  family("nv_inference_count", "Number of inferences performed (does not include cached requests)", "counter",
         [](const ModelMetrics& m) { return m.statistics.inference_count(); });
  family("nv_inference_exec_count", "Number of model executions performed (does not include cached requests)",
         "counter", [](const ModelMetrics& m) { return m.statistics.execution_count(); });
  us_of("nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)", &Stats::success);
  us_of("nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds", &Stats::queue);
  us_of("nv_inference_compute_input_duration_us", "Cumulative compute input duration in microseconds",
        &Stats::compute_input);
  us_of("nv_inference_compute_infer_duration_us", "Cumulative compute inference duration in microseconds",
        &Stats::compute_infer);
  us_of("nv_inference_compute_output_duration_us", "Cumulative inference compute output duration in microseconds",
        &Stats::compute_output);
  family("nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution per-model.",
         "gauge", [](const ModelMetrics& m) { return m.pending; });
  count_of("nv_cache_num_hits_per_model", "Number of cache hits per model", &Stats::cache_hit);
  count_of("nv_cache_num_misses_per_model", "Number of cache misses per model", &Stats::cache_miss);
  us_of("nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds", &Stats::cache_hit);
  us_of("nv_cache_miss_duration_per_model", "Total cache miss duration per model, in microseconds", &Stats::cache_miss);
  family("nv_model_memory_bytes", "Bytes of memory that the model's sessions hold", "gauge", [](const ModelMetrics& m) {
    uint64_t bytes = 0;
    for (const inference::MemoryUsage& memory : m.statistics.memory_usage()) bytes += memory.byte_size();
    return bytes;
  });
  if (options.summaries) append_summaries(text, models);
  if (options.histograms) append_histogram(text, models);
  return text;
}

}  // namespace sluice::serving
