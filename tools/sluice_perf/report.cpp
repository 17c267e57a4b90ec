#include "tools/sluice_perf/report.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <numeric>

namespace sluice::perf {

namespace {

namespace json = boost::json;

uint64_t error_count(const LevelResult& result) {
  return std::accumulate(result.errors.begin(), result.errors.end(), uint64_t{0},
                         [](uint64_t sum, const auto& entry) { return sum + entry.second; });
}

// Microseconds of the server per request.
double each(uint64_t ns, const ServerTimes& times) {
  return times.requests == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(times.requests) / 1e3;
}

double rows_of(const ServerTimes& times) {
  return times.executions == 0 ? 0 : static_cast<double>(times.inferences) / static_cast<double>(times.executions);
}

std::string time_text(double us) {
  return us < 1e3   ? fmt::format("{:.0f} us", us)
         : us < 1e6 ? fmt::format("{:.2f} ms", us / 1e3)
                    : fmt::format("{:.2f} s", us / 1e6);
}

json::object json_of(const Summary& summary) {
  return {{"count", summary.count}, {"mean", summary.mean}, {"p50", summary.p50},   {"p90", summary.p90},
          {"p95", summary.p95},     {"p99", summary.p99},   {"p999", summary.p999}, {"max", summary.max}};
}

}  // namespace

std::string table_head() {
  return fmt::format("{:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7}  {}", "level", "requests/s", "p50", "p90",
                     "p95", "p99", "errors", "steady", "of the server: queue + input + model + output");
}

std::string table_row(const LevelResult& result) {
  const ServerTimes& s = result.server;
  return fmt::format(
      "{:>8} {:>12.1f} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7}  {:.0f} + {:.0f} + {:.0f} + {:.0f} us, {:.2f} a step{}",
      result.level.name(), result.throughput, time_text(result.ok.p50), time_text(result.ok.p90),
      time_text(result.ok.p95), time_text(result.ok.p99), error_count(result), result.stable ? "yes" : "no",
      each(s.queue, s), each(s.input, s), each(s.infer, s), each(s.output, s), rows_of(s),
      result.forecast_rows > 0 ? fmt::format(", forecast {:.2f}", result.forecast_rows) : "");
}

std::string csv(const std::vector<LevelResult>& results) {
  std::string text =
      "concurrency,request_rate,offered_per_s,throughput_per_s,p50_us,p90_us,p95_us,p99_us,p999_us,max_us,mean_us,ok,"
      "errors,"
      "error_p99_us,error_max_us,queue_us,compute_input_us,compute_infer_us,compute_output_us,stable\n";
  for (const LevelResult& r : results) {
    const ServerTimes& s = r.server;
    text += fmt::format(
        "{},{:g},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{},{},{:.1f},{:.1f},{:.1f},{:.1f},"
        "{:.1f},{:.1f},{}\n",
        r.level.concurrency, r.level.request_rate, r.offered, r.throughput, r.ok.p50, r.ok.p90, r.ok.p95, r.ok.p99,
        r.ok.p999, r.ok.max, r.ok.mean, r.ok.count, error_count(r), r.failed.p99, r.failed.max, each(s.queue, s),
        each(s.input, s), each(s.infer, s), each(s.output, s), r.stable ? 1 : 0);
  }
  return text;
}

std::string json_text(const std::string& model, const std::vector<LevelResult>& results) {
  json::array levels;
  for (const LevelResult& r : results) {
    json::object errors;
    for (const auto& [status, count] : r.errors) errors[std::to_string(status)] = count;
    const ServerTimes& s = r.server;
    levels.push_back(json::object{
        {"concurrency", r.level.concurrency},
        {"request_rate", r.level.request_rate},
        {"offered_per_s", r.offered},
        {"throughput_per_s", r.throughput},
        {"latency_us", json_of(r.ok)},
        {"error_latency_us", json_of(r.failed)},
        {"errors", std::move(errors)},
        {"first_error", r.first_error},
        {"different", r.different},
        {"dropped", r.dropped},
        {"seconds", r.seconds},
        {"windows", r.windows},
        {"connections", r.connections},
        {"stable", r.stable},
        {"rows_per_step", rows_of(s)},
        {"forecast_rows_per_step", r.forecast_rows},
        {"server", json::object{{"requests", s.requests},
                                {"inferences", s.inferences},
                                {"executions", s.executions},
                                {"queue_us", each(s.queue, s)},
                                {"compute_input_us", each(s.input, s)},
                                {"compute_infer_us", each(s.infer, s)},
                                {"compute_output_us", each(s.output, s)}}},
    });
  }
  return json::serialize(json::object{{"model", model}, {"levels", std::move(levels)}}) + "\n";
}

}  // namespace sluice::perf
