#include "serving/execution/metrics.h"

#include <fmt/format.h>

#include <functional>
#include <iterator>

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

using Value = std::function<uint64_t(const ModelMetrics& model)>;
using Duration = const inference::StatisticDuration& (inference::InferStatistics::*)() const;

}  // namespace

std::string metrics_text(const std::vector<ModelMetrics>& models) {
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
  family("nv_inference_request_duration_us",
         "Cumulative inference request duration in microseconds (includes cached requests)", "counter",
         [](const ModelMetrics& m) { return m.statistics.inference_stats().success().ns() / 1000; });
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
  return text;
}

}  // namespace sluice::serving
