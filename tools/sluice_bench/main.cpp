// sluice-bench: how fast bundles load and run on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/error.h"
#include "include/sluice/sluice.hpp"
#include "tools/sluice_bench/measure.h"
#include "tools/sluice_bench/report.h"
#include "tools/sluice_run/capture.h"
#include "tools/sluice_run/values.h"

namespace {

using namespace sluice;

constexpr const char* kAbout =
    "Measures how fast saved graphs load and run. Its options, tables and files are those of Google Benchmark, so that "
    "tools for those read them.\n\n"
    "  sluice-bench out/digits                                all that there is to measure\n"
    "  sluice-bench out/digits --benchmark_filter=run         calls one after another: their latency\n"
    "  sluice-bench out/digits --in-flight=1 --in-flight=4    calls that overlap: steps per second\n"
    "  sluice-bench out/digits --cores=2 --benchmark_repetitions=9\n"
    "  sluice-bench before after --benchmark_out=times.json   two bundles, and a file for compare.py\n"
    "  sluice-bench work                                      a capture of sluice-run, with its inputs in their "
    "order\n\n"
    "BUNDLE/load loads a bundle and lets go of it. BUNDLE/run is one call after another, from inputs to results. "
    "BUNDLE/in_flight:N keeps N calls under way. CPU is the time of all threads of the process; items are steps. "
    "Inputs "
    "that are not given are random. On a busy machine compare medians of repetitions that alternate.";

struct Arguments {
  std::vector<std::string> bundles, extensions, backends;
  run::InputArguments input{{}, {}, "random", 0};
  std::vector<int> in_flight;
  std::string filter = ".", format = "console", out, out_format = "json", unit = "us";
  double min_time = 0.5, items = 1;
  int repetitions = 1, cores = 0;
  bool list = false, aggregates_only = false;
};

std::string name_of(const std::string& bundle) {
  const std::filesystem::path path = std::filesystem::path(bundle).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// Keeps `depth` steps under way until `n` are done.
void run_overlapping(api::Session& session, const std::vector<std::vector<api::Tensor>>& inputs, int64_t n, int depth) {
  std::deque<api::Result> under_way;
  for (int64_t i = 0; i < n; ++i) {
    if (static_cast<int>(under_way.size()) == depth) {
      under_way.front().get();
      under_way.pop_front();
    }
    under_way.push_back(session.submit(inputs[static_cast<size_t>(i) % inputs.size()]));
  }
  for (api::Result& step : under_way) step.get();
}

class Program {
 public:
  explicit Program(Arguments& args)
      : args_(args), engine_({.cores = args.cores}), unit_(bench::parse_time_unit(args.unit)) {
    for (const std::string& path : args.backends) engine_.load_backend(path);
    for (const std::string& path : args.extensions) engine_.load_extension(path);
  }

  int run() {
    const std::vector<bench::Case> cases = chosen();
    if (cases.empty())
      throw std::runtime_error("--benchmark_filter '" + args_.filter +
                               "' matches none; --benchmark_list_tests shows all");
    std::vector<std::string> names;
    for (const bench::Case& c : cases) names.push_back(c.name);
    if (args_.list) {
      for (const std::string& name : names) fmt::print("{}\n", name);
      return 0;
    }
    const bench::Context context = bench::context_here("sluice-bench");
    const bool console = args_.format == "console";
    if (console) std::fputs(bench::console_head(names).c_str(), stdout);
    std::vector<bench::Measured> rows;
    for (const bench::Case& c : cases) {
      for (const bench::Measured& row : bench::measure(c, {args_.min_time, args_.repetitions, {}, {}})) {
        const bool shown = !args_.aggregates_only || args_.repetitions < 2 || !row.aggregate.empty();
        if (!shown) continue;
        rows.push_back(row);
        if (console) std::fputs(bench::console_row(row, unit_, names).c_str(), stdout);
      }
      std::fflush(stdout);
    }
    if (!console) std::fputs(text_of(args_.format, context, rows).c_str(), stdout);
    if (!args_.out.empty()) write(args_.out, text_of(args_.out_format, context, rows));
    return 0;
  }

 private:
  // Bundles are loaded when they are first measured, so that each is alone in memory as long as may be.
  struct Loaded {
    api::Session session;
    std::vector<std::vector<api::Tensor>> inputs;  // of steps, in turn
  };
  static std::string path_of(const std::string& bundle) {
    return run::is_capture(bundle) ? run::read_capture(bundle).bundle() : bundle;
  }
  std::vector<std::vector<api::Tensor>> inputs_for(const std::string& bundle,
                                                   const std::vector<api::Port>& ports) const {
    if (!run::is_capture(bundle)) return {run::make_inputs(ports, args_.input)};
    const run::Capture capture = run::read_capture(bundle);
    std::vector<std::vector<api::Tensor>> inputs;
    for (int64_t step = 0; step < capture.steps(); ++step) inputs.push_back(run::inputs_of(capture, ports, step));
    return inputs;
  }
  Loaded& loaded(const std::string& bundle) {
    if (current_ == nullptr || current_name_ != bundle) {
      current_.reset();
      api::Session session = api::Session::load(engine_, path_of(bundle), {.max_in_flight = deepest()});
      std::vector<std::vector<api::Tensor>> inputs = inputs_for(bundle, session.inputs());
      current_ = std::make_unique<Loaded>(Loaded{std::move(session), std::move(inputs)});
      current_name_ = bundle;
    }
    return *current_;
  }

  // 0, the plan's own number, where no larger one is asked for.
  int deepest() const {
    return args_.in_flight.empty() ? 0 : *std::max_element(args_.in_flight.begin(), args_.in_flight.end());
  }

  std::vector<bench::Case> chosen() {
    const std::regex filter(args_.filter);
    std::vector<bench::Case> cases;
    const auto add = [&](const std::string& name, std::function<void(int64_t)> body) {
      if (std::regex_search(name, filter)) cases.push_back({name, std::move(body), args_.items});
    };
    for (const std::string& bundle : args_.bundles) {
      const std::string name = name_of(bundle);
      add(name + "/load", [this, bundle](int64_t n) {
        current_.reset();
        for (int64_t i = 0; i < n; ++i) api::Session::load(engine_, path_of(bundle));
      });
      add(name + "/run", [this, bundle](int64_t n) {
        Loaded& on = loaded(bundle);
        for (int64_t i = 0; i < n; ++i) on.session.run(on.inputs[static_cast<size_t>(i) % on.inputs.size()]);
      });
      for (const int depth : args_.in_flight.empty() ? std::vector<int>{2} : args_.in_flight)
        add(fmt::format("{}/in_flight:{}", name, depth), [this, bundle, depth](int64_t n) {
          Loaded& on = loaded(bundle);
          run_overlapping(on.session, on.inputs, n, depth);
        });
    }
    return cases;
  }

  std::string text_of(const std::string& format, const bench::Context& context,
                      const std::vector<bench::Measured>& rows) const {
    if (format == "json") return bench::json_text(context, rows, unit_);
    if (format == "csv") return bench::csv_text(rows, unit_);
    std::vector<std::string> names;
    for (const bench::Measured& row : rows) names.push_back(row.name);
    std::string text = bench::console_head(names);
    for (const bench::Measured& row : rows) text += bench::console_row(row, unit_, names);
    return text;
  }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written", path);
  }

  Arguments& args_;
  api::Engine engine_;
  const bench::TimeUnit unit_;
  std::unique_ptr<Loaded> current_;
  std::string current_name_;
};

void add_options(CLI::App& app, Arguments& args) {
  const CLI::IsMember formats({"console", "json", "csv"});
  app.add_option("bundles", args.bundles, "directories that sluice.save wrote, tar archives of such, or captures")
      ->required();
  app.add_option("--in-flight", args.in_flight, "calls under way at once; once for each number to measure (default 2)")
      ->check(CLI::Range(1, 65536))
      ->take_all();
  app.add_option("--input", args.input.inputs,
                 "[NAME=]VALUE: @FILE.npy, zeros, random, or numbers with commas between; once for each input")
      ->take_all();
  app.add_option("--fill", args.input.fill, "inputs that are not given: zeros or random")
      ->check(CLI::IsMember({"zeros", "random"}))
      ->capture_default_str();
  app.add_option("--seed", args.input.seed, "of random inputs")->capture_default_str();
  app.add_option("--dim", args.input.dims, "NAME=SIZE: how long an axis is that may differ, as in batch=8")->take_all();
  app.add_option("--items", args.items, "that a step handles, for items_per_second: the batch, say")
      ->check(CLI::Range(1e-9, 1e12, "POSITIVE"))
      ->capture_default_str();
  app.add_option("--cores", args.cores, "that kernels use; 0: all")->check(CLI::NonNegativeNumber);
  app.add_option("--extension", args.extensions, "a shared library with ops of your own")->take_all();
  app.add_option("--backend", args.backends, "a library with a device of your own, or a foreign backend")->take_all();
  app.add_option("--benchmark_filter", args.filter, "a regular expression: what is measured")->capture_default_str();
  app.add_flag("--benchmark_list_tests", args.list, "only list what would be measured");
  app.add_option("--benchmark_min_time", args.min_time, "seconds of a measurement, at least")
      ->check(CLI::Range(1e-6, 3600.0))
      ->capture_default_str();
  app.add_option("--benchmark_repetitions", args.repetitions, "measurements of each; several also give mean and median")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_flag("--benchmark_report_aggregates_only", args.aggregates_only, "of several, only mean, median and spread");
  app.add_option("--benchmark_time_unit", args.unit, "ns, us, ms or s")
      ->check(CLI::IsMember({"ns", "us", "ms", "s"}))
      ->capture_default_str();
  app.add_option("--benchmark_format", args.format, "on the screen: console, json or csv")
      ->check(formats)
      ->capture_default_str();
  app.add_option("--benchmark_out", args.out, "a file for the results, too");
  app.add_option("--benchmark_out_format", args.out_format, "of that file: console, json or csv")
      ->check(formats)
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args;
  CLI::App app(kAbout, "sluice-bench");
  app.set_version_flag("--version", std::string(api::version()));
  add_options(app, args);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {  // help is one, too
    return app.exit(e) == 0 ? 0 : 1;
  }
  try {
    return Program(args).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "sluice-bench: {}\n", error.what());
    return 1;
  }
}
