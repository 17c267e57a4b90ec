// sluice-perf: load for a served model, and what its clients see of it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>

#include "sluice/version.h"
#include "tools/sluice_perf/inputs.h"
#include "tools/sluice_perf/load.h"
#include "tools/sluice_perf/report.h"
#include "tools/sluice_perf/sweep.h"
#include "tools/sluice_perf/tune.h"

namespace {

using namespace sluice::perf;

constexpr int kMissed = 3;  // exit status

struct Arguments {
  std::string url = "127.0.0.1:8000", model, version, concurrency, rate, replay, get;
  std::string csv, json, picture, batch_picture;
  std::vector<std::string> shapes, headers;
  std::string tune_delays = "500,2000";
  bool constant = false, no_progress = false, forecast = false, tune = false;
  int tune_instances = 2;
  double latency_limit_ms = 0, target_qps = 0;
  InputOptions input;
  LoadOptions load;
};

constexpr const char* kAbout =
    "Sends requests for inference to a server of the Open Inference Protocol (KServe v2) over HTTP, and measures what "
    "its clients see.\n\n"
    "  sluice-perf -m digits                              one request at a time\n"
    "  sluice-perf -m digits --concurrency 1:8            closed loop: 1, 2, .. 8 requests at a time\n"
    "  sluice-perf -m digits --request-rate 100:1000:100  open loop: requests come by chance (Poisson), so many a "
    "second\n"
    "  sluice-perf -m digits --request-rate 70%,200%      the same, as shares of the peak, which is measured first\n"
    "  sluice-perf -m digits --concurrency 1:8 --picture load.svg --csv load.csv --json load.json\n"
    "  sluice-perf -m digits --concurrency 1:8 --target-qps 500 --latency-limit-ms 20     whether that is reached\n"
    "  sluice-perf -m digits --tune --concurrency 1,8,64  which instances and batching answer most requests a second\n"
    "  sluice-perf --replay requests.log                  send again what sluice-serve --request-log has kept\n\n"
    "Latency is the client's: from when a request was due to the last byte of its answer. A level is measured in "
    "windows, after a warm-up, until three in a row agree; `steady` tells whether they did.";

void tell(const std::string& line) {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (terminal) std::fprintf(stderr, "\r\033[K%s", line.c_str());
}

std::map<std::string, std::vector<int64_t>> parse_shapes(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const std::string& text : texts) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0)
      throw std::runtime_error(fmt::format("--shape '{}': it must be NAME:DIM,DIM, as in INPUT_0:3,224,224", text));
    std::vector<int64_t> dims;
    for (const SweepValue& dim : parse_sweep(text.substr(colon + 1))) dims.push_back(static_cast<int64_t>(dim.value));
    shapes[text.substr(0, colon)] = dims;
  }
  return shapes;
}

void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file.good()) throw std::runtime_error(fmt::format("file '{}' cannot be written", path));
}

class Program {
 public:
  explicit Program(Arguments& args) : args_(args) {
    target_ = parse_target(args.url);
    target_.model = args.model;
    target_.version = args.version;
    if (args.constant) args_.load.arrivals = Arrivals::kConstant;
    for (const std::string& header : args.headers) {
      if (header.find(':') == std::string::npos || header.find_first_of("\r\n") != std::string::npos)
        throw std::runtime_error(fmt::format("--header '{}': it must be 'NAME: VALUE'", header));
      args_.input.extra_headers += header + "\r\n";
    }
    if (!args.get.empty()) {
      requests_ = {get_request(target_, args.get, args_.input.extra_headers)};
    } else if (!args.replay.empty()) {
      requests_ = logged_requests(target_, args.replay);
    } else {
      args_.input.shapes = parse_shapes(args.shapes);
      const ModelInfo info = model_info(target_);
      max_batch_ = info.max_batch;
      requests_ = make_requests(target_, info, args_.input);
    }
  }

  int run() {
    const size_t bytes = requests_[0].size();
    std::printf("%zu request%s of %zu bytes, to %s:%s\n%s\n", requests_.size(),
                requests_.size() == 1 ? "" : "s in turn", bytes, target_.host.c_str(), target_.port.c_str(),
                table_head().c_str());
    if (args_.forecast || !args_.batch_picture.empty()) calibrate();
    if (args_.tune)
      tune();
    else
      for (const Level& level : levels()) measure(level);
    const std::string name = args_.model.empty() ? args_.get + args_.replay : args_.model;
    write_file(args_.csv, csv(results_));
    write_file(args_.json, json_text(name, results_));
    write_file(args_.picture, picture("Latency against throughput: " + name, results_));
    write_file(args_.batch_picture, batch_picture("Requests that share a step: " + name, results_));
    return verdict();
  }

 private:
  std::vector<Level> levels() {
    std::vector<Level> levels;
    if (args_.rate.empty()) {
      for (const SweepValue& value : parse_sweep(args_.concurrency.empty() ? "1" : args_.concurrency)) {
        if (value.percent || value.value != std::floor(value.value) || value.value > 10000)
          throw std::runtime_error("--concurrency: it must be whole numbers of at most 10000");
        levels.push_back({static_cast<int>(value.value), 0});
      }
      return levels;
    }
    const auto rates = parse_sweep(args_.rate);
    double peak = 0;
    if (std::any_of(rates.begin(), rates.end(), [](const SweepValue& rate) { return rate.percent; })) {
      const auto at = parse_sweep(args_.concurrency.empty() ? "8" : args_.concurrency);
      for (const SweepValue& value : at) peak = std::max(peak, measure({static_cast<int>(value.value), 0}).throughput);
      if (peak == 0) throw std::runtime_error("the peak cannot be measured: no request was answered well");
    }
    for (const SweepValue& rate : rates) levels.push_back({0, rate.percent ? peak * rate.value / 100 : rate.value});
    return levels;
  }

  // Every candidate at every level; the best of them stays loaded. A candidate that fails leaves the model as it was.
  void tune() {
    const std::string config = config_of(target_);
    std::vector<int64_t> delays;
    for (const SweepValue& delay : parse_sweep(args_.tune_delays)) delays.push_back(static_cast<int64_t>(delay.value));
    const std::vector<Level> all = levels();
    std::optional<Candidate> best;
    double most = 0;
    try {
      for (const Candidate& candidate : candidates(max_batch_, args_.tune_instances, delays)) {
        load_with(target_, config, &candidate);
        std::printf("%s\n", candidate.name().c_str());
        double here = 0;
        for (const Level& level : all) {
          const LevelResult& result = measure(level);
          if (counts(result)) here = std::max(here, result.throughput);
        }
        if (here <= most) continue;
        most = here;
        best = candidate;
      }
      load_with(target_, config, best ? &*best : nullptr);
    } catch (...) {
      load_with(target_, config, nullptr);
      throw;
    }
    if (best)
      std::printf("best: %s, %.1f requests a second; in config.pbtxt:\n%s", best->name().c_str(), most,
                  best->text().c_str());
    else
      std::printf("best: none answers every request within %g ms; the model is as it was\n", args_.latency_limit_ms);
  }

  // How long steps of each size take, by closed loops of more and more requests; in the last one some always wait.
  void calibrate() {
    if (args_.rate.empty() || args_.constant || args_.input.batch != 1 || max_batch_ < 2)
      throw std::runtime_error(
          "--forecast: it is of requests of one row that come by chance (--request-rate), to a model with batches");
    for (int64_t at = 1; at <= 4 * max_batch_; at *= 2) {
      const StepTimes before = step_times(target_);
      const auto begin = std::chrono::steady_clock::now();
      measure({static_cast<int>(at), 0});
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      times_ = step_times(target_);
      const auto steps = static_cast<double>(times_.steps() - before.steps());
      if (steps > 0) times_.set_gap(std::max(0.0, (seconds - (times_.busy() - before.busy())) / steps));
    }
    results_.clear();
  }

  const LevelResult& measure(const Level& level) {
    const bool stats = !args_.model.empty();
    const ServerTimes before = stats ? server_times(target_) : ServerTimes{};
    LevelResult result =
        run_level(target_, requests_, level, args_.load, args_.no_progress ? [](const std::string&) {} : tell);
    if (stats) result.server = server_times(target_).since(before);
    if (level.request_rate > 0 && !times_.empty())
      result.forecast_rows = forecast_batches(level.request_rate, max_batch_, times_).mean_rows;
    tell("");
    std::printf("%s\n", table_row(result).c_str());
    if (!result.errors.empty()) {
      std::string counts;
      for (const auto& [status, count] : result.errors)
        counts += fmt::format("{}{} x {}", counts.empty() ? "" : ", ", count,
                              status == 0 ? "no answer" : std::to_string(status));
      std::printf("%8s errors: %s; p99 %.1f ms; the first: %s\n", "", counts.c_str(), result.failed.p99 / 1e3,
                  result.first_error.c_str());
    }
    if (result.dropped > 0)
      std::printf("%8s %llu times the server closed a connection that was in use; the request was sent again\n", "",
                  static_cast<unsigned long long>(result.dropped));
    if (result.different > 0)
      std::printf("%8s %llu answers differ from the first\n", "", static_cast<unsigned long long>(result.different));
    std::fflush(stdout);
    results_.push_back(std::move(result));
    return results_.back();
  }

  // Every request was answered, and in time.
  bool counts(const LevelResult& result) const {
    const bool in_time = args_.latency_limit_ms == 0 || result.ok.p99 <= args_.latency_limit_ms * 1e3;
    return in_time && result.errors.empty();
  }

  int verdict() const {
    for (const LevelResult& result : results_)
      if (result.ok.count == 0 || result.different > 0) return 1;
    return args_.target_qps == 0 || reaches_target() ? 0 : kMissed;
  }

  bool reaches_target() const {
    double most = 0;
    for (const LevelResult& result : results_)
      if (counts(result)) most = std::max(most, result.throughput);
    const bool met = most >= args_.target_qps;
    const std::string in_time = args_.latency_limit_ms == 0 ? "" : fmt::format(" within {} ms", args_.latency_limit_ms);
    std::printf("target: %s: at most %.1f requests a second are answered%s; must be %g\n", met ? "met" : "missed", most,
                in_time.c_str(), args_.target_qps);
    return met;
  }

  Arguments& args_;
  Target target_;
  int64_t max_batch_ = 0;
  StepTimes times_;  // of a forecast
  std::vector<std::string> requests_;
  std::vector<LevelResult> results_;
};

void add_options(CLI::App& app, Arguments& args) {
  app.add_option("-m,--model", args.model, "name of the model");
  app.add_option("-x,--model-version", args.version, "its version (default: the newest)");
  app.add_option("-u,--url", args.url, "HOST:PORT, or HOST:PORT/BASE")->capture_default_str();
  app.add_option("--concurrency,--concurrency-range", args.concurrency, "requests at a time: 4, 1:8, 1:8:2 or 1,4,16");
  app.add_option(
      "--request-rate,--request-rate-range", args.rate,
      "requests a second, whether or not earlier ones are answered; with %, of the peak at --concurrency (8)");
  app.add_flag("--constant", args.constant, "requests of a rate come at equal distances, not by chance");
  app.add_option("-b,--batch", args.input.batch, "rows of a request")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option(
         "--input-data", args.input.data,
         "random, zero, a file of JSON ({\"data\": [{\"INPUT_0\": [..]}]}), or a folder with a file of raw bytes "
         "per input")
      ->capture_default_str();
  app.add_option("--shape", args.shapes, "NAME:DIM,DIM of an input with dims of any size, without the batch");
  app.add_option("--string-length", args.input.string_length, "of random elements of BYTES")->capture_default_str();
  app.add_option("--header", args.headers, "'NAME: VALUE', sent with every request");
  app.add_option("--seed", args.input.seed, "of random data and arrivals")->capture_default_str();
  app.add_option("--replay", args.replay, "a file of sluice-serve --request-log: send its requests");
  app.add_option("--get", args.get, "a path, as in /v2/health/ready: send GET of it instead of requests for inference");
  app.add_flag("--expect", args.load.expect_equal, "compare every answer with the first; exit status 1 if one differs");
  app.add_option("--warmup-secs", args.load.warmup_s, "not measured, before each level")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--window-secs", args.load.window_s, "of a window")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  app.add_option("--windows", args.load.windows, "that must agree")->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--max-windows", args.load.max_windows, "after which a level is over")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--stability", args.load.stability, "by which windows may differ in throughput and p50")
      ->check(CLI::Range(0.001, 10.0))
      ->capture_default_str();
  app.add_option("--max-connections", args.load.max_connections, "of an open loop; requests wait for one, which counts")
      ->check(CLI::Range(1, 20000))
      ->capture_default_str();
  app.add_option("--timeout-secs", args.load.timeout_s, "after which a request counts as failed")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--csv", args.csv, "file to write: a line for each level");
  app.add_option("--json", args.json, "file to write: all figures");
  app.add_option("--picture", args.picture, "SVG file to write: latency against throughput");
  app.add_flag("--forecast", args.forecast,
               "first measure steps of each size, and say of each rate how many requests will share a step");
  app.add_option("--batch-picture", args.batch_picture, "SVG file to write: rows of a step, measured and forecast");
  app.add_flag(
      "--tune", args.tune,
      "measure the model with more instances, and with and without batching; leave the best loaded, and print it. "
      "The server must run with --model-control-mode explicit");
  app.add_option("--tune-instances", args.tune_instances, "of --tune: at most so many; 1, 2, 4 .. are tried")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--tune-delays", args.tune_delays, "of --tune: max_queue_delay_microseconds to try, besides none")
      ->capture_default_str();
  app.add_option("--target-qps", args.target_qps,
                 "requests a second that a level must answer, all of them and within --latency-limit-ms; exit status 3 "
                 "where none does")
      ->check(CLI::Range(1e-9, 1e12, "POSITIVE"));
  app.add_option("--latency-limit-ms", args.latency_limit_ms,
                 "of --tune and --target-qps: a level whose p99 is above it does not count; 0: none")
      ->check(CLI::Range(0.0, 3.6e6))
      ->capture_default_str();
  app.add_flag("--no-progress", args.no_progress, "no line of progress (there is none without a terminal)");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kAbout, "sluice-perf");
  app.set_version_flag("--version", "sluice-perf " SLUICE_VERSION);
  app.footer(
      "Exit status: 0; 1 when a level had no good answer, or --expect found a difference; 2 for what cannot be done; 3 "
      "when --target-qps is missed.");
  Arguments args;
  add_options(app, args);
  try {
    app.parse(argc, argv);
    if (!args.model.empty() + !args.replay.empty() + !args.get.empty() != 1)
      throw std::runtime_error(
          "say which model, as in -m digits, or which log of requests, as in --replay requests.log");
    if (args.tune && args.model.empty()) throw std::runtime_error("--tune: say which model, as in -m digits");
    args.load.seed = args.input.seed;
    return Program(args).run();
  } catch (const CLI::ParseError& e) {  // help is one, too
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    tell("");
    std::fprintf(stderr, "sluice-perf: %s\n", e.what());
    return 2;
  }
}
