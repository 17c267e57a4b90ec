// sluice-run: runs a bundle from the shell, on inputs from .npy files or numbers, without Python.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "include/sluice/sluice.hpp"
#include "tools/sluice_run/audit.h"
#include "tools/sluice_run/capture.h"
#include "tools/sluice_run/npy.h"
#include "tools/sluice_run/values.h"

namespace {

using namespace sluice;
namespace fs = std::filesystem;

constexpr int kDiffers = 2;  // exit status

constexpr const char* kAbout =
    "Runs a saved graph and shows its results. It needs no Python: inputs and results are NumPy's .npy files, or "
    "numbers.\n\n"
    "  sluice-run out/digits --info                        what it takes and gives, and its memory\n"
    "  sluice-run out/digits --input=@x.npy                the inputs in their order, from files\n"
    "  sluice-run out/digits --input=images=@x.npy         or by name\n"
    "  sluice-run out/net --input=1,2,3,4 --input=scale=2  numbers: one for each element, or one for all\n"
    "  sluice-run out/net --fill=random --output=@y.npy    made-up inputs; the result goes to a file\n"
    "  sluice-run out/net --input=@x.npy --expect=@y.npy   compares, and ends with status 2 where results differ\n"
    "  sluice-run out/input --steps=100 --hash             a digest of all results of 100 steps, such as batches\n"
    "  sluice-run out/net --fill=random --shuffle=7        actors get their messages in an order that 7 chooses\n"
    "  sluice-run out/net --fill=random --audit=run.json   a record of the run, and run.slm, the order of its "
    "messages\n"
    "  sluice-run --verify=run.json                        runs it again, and says what is not as it was\n"
    "  sluice-run out/net --fill=random --steps=9 --capture=work   the bundle, the inputs and digests of the results\n"
    "  sluice-run work                                     runs all steps of a capture, and compares, bit for bit";

struct Arguments {
  std::string bundle;
  run::InputArguments input;
  std::vector<std::string> outputs, expected, extensions, backends, data_roots;
  double tolerance = 1e-5;
  int cores = 0;
  int64_t steps = 1;
  std::string record, replay, audit, verify, key, capture;
  std::optional<uint64_t> shuffle;
  bool info = false, quiet = false, hash = false;
};

void print_ports(const char* what, const std::vector<api::Port>& ports) {
  for (const api::Port& port : ports) fmt::print("{:<8} {}\n", what, port.str());
}

void load_code(api::Engine& engine, const Arguments& args) {
  for (const std::string& path : args.backends) engine.load_backend(path);
  for (const std::string& path : args.extensions) engine.load_extension(path);
}

api::SessionOptions session_options(const Arguments& args) {
  api::SessionOptions options;
  for (const std::string& root : args.data_roots) {
    const size_t equals = root.find('=');
    SLUICE_CHECK(equals != std::string::npos, "--data-root {}: must be FOLDER=FOLDER", root);
    options.data_roots.push_back({root.substr(0, equals), root.substr(equals + 1)});
  }
  return options;
}

void print_info(const Arguments& args) {
  api::Engine engine;
  load_code(engine, args);
  const api::Plan plan = api::Plan::load(args.bundle);
  fmt::print("plan     {}: {} actors, {} kernels, {} bytes of memory\n", plan.name(), plan.actors().size(),
             plan.kernels(), plan.memory_bytes());
  print_ports("input", plan.inputs());
  print_ports("output", plan.outputs());
}

// How many results differ from what was expected.
int compare(const std::vector<api::Port>& ports, const std::vector<api::Tensor>& results, const Arguments& args) {
  int different = 0;
  for (const auto& [port, text] : run::by_port(ports, args.expected, "--expect")) {
    const std::string told = run::difference(results[port], run::read_npy(run::file_of(text)), args.tolerance);
    if (told.empty()) continue;
    ++different;
    fmt::print(stderr, "sluice-run: output '{}': {}\n", ports[port].name, told);
  }
  return different;
}

std::vector<std::string> code_of(const Arguments& args) {
  std::vector<std::string> code = args.backends;
  code.insert(code.end(), args.extensions.begin(), args.extensions.end());
  return code;
}

// Runs all steps. Once it returns, the order of messages is written.
struct Ran {
  run::ResultDigest digest;
  std::map<std::string, std::string> inputs, outputs;  // digests, where they are asked for
  int different = 0;
};

Ran run_steps(const Arguments& args, bool audited) {
  api::Engine engine({.cores = args.cores,
                      .record_messages = args.record,
                      .replay_messages = args.replay,
                      .shuffle_messages = args.shuffle});
  load_code(engine, args);
  api::Session session = api::Session::load(engine, args.bundle, session_options(args));
  const std::map<size_t, std::string> files = run::by_port(session.outputs(), args.outputs, "--output");
  const std::vector<api::Tensor> inputs = run::make_inputs(session.inputs(), args.input);
  Ran ran{run::ResultDigest(args.steps), {}, {}};
  std::optional<run::CaptureWriter> capture;
  if (!args.capture.empty()) capture.emplace(args.capture, args.bundle);
  std::vector<api::Tensor> results;
  for (int64_t step = 0; step < args.steps; ++step) {
    if (capture) capture->begin_step(inputs);
    results = session.run(inputs);
    if (capture) capture->end_step(results);
    if (args.hash || audited) ran.digest.add(results);
  }
  if (capture) capture->end();
  if (audited) ran.inputs = run::digests_of(session.inputs(), inputs);
  if (audited) ran.outputs = run::digests_of(session.outputs(), results);
  if (args.hash) fmt::print("{}\n", ran.digest.text());
  for (size_t i = 0; i < results.size(); ++i) {
    const auto file = files.find(i);
    if (file != files.end()) run::write_npy(run::file_of(file->second), results[i]);
    if (!args.quiet && !args.hash && file == files.end())
      std::fputs(run::show(session.outputs()[i].name, results[i]).c_str(), stdout);
  }
  ran.different = compare(session.outputs(), results, args);
  return ran;
}

int run_bundle(Arguments args) {
  if (args.audit.empty()) return run_steps(args, false).different > 0 ? kDiffers : 0;
  const fs::path audit = args.audit;
  if (args.record.empty()) args.record = fs::path(audit).replace_extension(".slm").string();
  const fs::path order = args.record;
  SLUICE_CHECK(order.parent_path() == audit.parent_path() && order != audit,
               "--audit {}, --record {}: they must be two files of one folder", args.audit, args.record);
  const std::string key = args.key.empty() ? "" : run::key_of(args.key);
  run::RunRecord record{{args.bundle, args.input, args.steps, args.cores, args.shuffle}, {}, 1, {}, {}, {}, {}};
  record.facts = run::facts_of(args.bundle, code_of(args));
  const Ran ran = run_steps(args, true);
  record.facts["inputs"] = ran.inputs;
  record.outputs = ran.outputs;
  record.every = ran.digest.every();
  record.digests = ran.digest.kept();
  record.order = order.filename().string();
  record.order_digest = run::digest_of_file(args.record);
  run::write_record(record, args.audit, key);
  return ran.different > 0 ? kDiffers : 0;
}

// A file that is gone with this.
class TemporaryFile {
 public:
  TemporaryFile() : path_((fs::temp_directory_path() / "sluice-run.XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    SLUICE_CHECK_KIND(kIo, descriptor >= 0, "{}: cannot be made; the folder must be writable", path_);
    close(descriptor);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs what a record says once more, and tells all that is not as it was.
int verify(Arguments args) {
  const run::RunRecord record = run::read_record(args.verify, args.key.empty() ? "" : run::key_of(args.key));
  const run::RunCommand& command = record.command;
  if (args.bundle.empty()) args.bundle = command.bundle;
  args.input = command.input, args.steps = command.steps, args.cores = command.cores, args.quiet = true;
  const fs::path order = fs::path(args.verify).replace_filename(record.order);
  SLUICE_CHECK(run::digest_of_file(order.string()) == record.order_digest,
               "{}: the order of messages is not the one of {}; it must be the file that was written with it",
               order.string(), args.verify);
  run::Facts facts = run::facts_of(args.bundle, code_of(args));
  const auto same = [&](const char* section) {
    return record.facts.contains(section) && facts.at(section) == record.facts.at(section);
  };
  const bool replayed = same("build") && same("files");
  const TemporaryFile again;
  args.record = again.path();
  if (replayed)
    args.replay = order.string();
  else
    args.shuffle = command.shuffle;
  const Ran ran = run_steps(args, true);
  facts["inputs"] = ran.inputs;
  std::vector<std::string> lines = run::differences(facts, record.facts);
  if (!replayed)
    lines.push_back("order: it was not replayed; only the same build can do so, with the same bundle");
  else if (run::digest_of_file(again.path()) != record.order_digest)
    lines.push_back("order: messages came in another order than the one that was replayed");
  const std::vector<std::string> results = run::differences(ran.digest, ran.outputs, record);
  lines.insert(lines.end(), results.begin(), results.end());
  for (const std::string& line : lines) fmt::print("{}\n", line);
  fmt::print("{}: {} of '{}', {}\n", args.verify, args.steps == 1 ? "a step" : fmt::format("{} steps", args.steps),
             args.bundle,
             lines.empty()     ? "in the same order of messages: the results are the same, bit for bit"
             : results.empty() ? "under other conditions: the results are the same, bit for bit"
                               : "not confirmed: the results are others");
  return lines.empty() ? 0 : kDiffers;
}

// Runs the steps of a capture, and says which results are others.
int run_capture(const Arguments& args) {
  const run::Capture capture = run::read_capture(args.bundle);
  api::Engine engine({.cores = args.cores,
                      .record_messages = args.record,
                      .replay_messages = args.replay,
                      .shuffle_messages = args.shuffle});
  load_code(engine, args);
  api::Session session = api::Session::load(engine, capture.bundle(), session_options(args));
  run::ResultDigest all(capture.steps());
  int64_t differ = 0, first = -1;
  for (int64_t step = 0; step < capture.steps(); ++step) {
    const std::vector<api::Tensor> results = session.run(run::inputs_of(capture, session.inputs(), step));
    if (args.hash) all.add(results);
    if (run::digest_of_step(results) == capture.digests[static_cast<size_t>(step)]) continue;
    if (differ++ == 0) first = step;
  }
  if (args.hash) fmt::print("{}\n", all.text());
  if (!args.quiet && !args.hash)
    fmt::print("{}: {} of Sluice {}: {}\n", args.bundle,
               capture.steps() == 1 ? "a step" : fmt::format("{} steps", capture.steps()), capture.version,
               differ == 0 ? "the results are the same, bit for bit"
                           : fmt::format("the results of {} are others, first of step {}", differ, first));
  return differ == 0 ? 0 : kDiffers;
}

// Options that say what a capture says itself.
void check_options_of_capture(const Arguments& args) {
  const bool given = !args.input.inputs.empty() || !args.input.dims.empty() || !args.input.fill.empty() ||
                     !args.outputs.empty() || !args.expected.empty() || args.steps != 1;
  SLUICE_CHECK(!given && args.audit.empty() && args.capture.empty() && !args.info,
               "{}: this is a capture, which has its inputs and steps; only --cores, --data-root, --hash, --quiet, "
               "--record, --replay, --shuffle, --extension and --backend go with it. {}/bundle is its bundle",
               args.bundle, args.bundle);
}

void add_run_options(CLI::App& app, Arguments& args) {
  app.add_option("--input", args.input.inputs,
                 "[NAME=]VALUE: @FILE.npy, zeros, random, or numbers with commas between; once for each input")
      ->take_all();
  app.add_option("--output", args.outputs, "[NAME=]@FILE.npy: where a result goes instead of the screen")->take_all();
  app.add_option("--expect", args.expected, "[NAME=]@FILE.npy: what a result must be, within --tolerance")->take_all();
  app.add_option("--tolerance", args.tolerance, "of --expect: |got - expected| <= tolerance * (1 + |expected|)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--fill", args.input.fill, "inputs that are not given: zeros or random")
      ->check(CLI::IsMember({"zeros", "random"}));
  app.add_option("--seed", args.input.seed, "of random inputs")->capture_default_str();
  app.add_option("--dim", args.input.dims, "NAME=SIZE: how long an axis is that may differ, as in batch=8")->take_all();
  app.add_option("--steps", args.steps, "how often it is run, on the same inputs; what is shown are the last results")
      ->check(CLI::Range(1, 1'000'000'000, "POSITIVE"))
      ->capture_default_str();
  app.add_option("--cores", args.cores, "that kernels use; 0: all")->check(CLI::NonNegativeNumber);
  app.add_flag("--hash", args.hash, "show nothing but a digest of the bytes of all results of all steps");
  app.add_flag("--info", args.info, "show inputs, outputs and memory, and run nothing");
  CLI::Option* const replay =
      app.add_option("--replay", args.replay, "FILE: actors get their messages in the order that --record wrote");
  app.add_option("--record", args.record, "FILE: write the order in which actors get their messages, to --replay it");
  app.add_option("--shuffle", args.shuffle, "SEED: it chooses the order of messages; results are the same")
      ->excludes(replay);
  app.add_option("--capture", args.capture, "FOLDER: write what runs the same steps again, alone: sluice-run FOLDER")
      ->excludes(replay);
  CLI::Option* const audit =
      app.add_option("--audit", args.audit, "FILE.json: write what was run, on what, and digests of all results");
  app.add_option(
         "--data-root", args.data_roots,
         "FOLDER=FOLDER: files whose names begin with the first are in the second; =FOLDER: those of relative names")
      ->take_all()
      ->excludes(audit);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args;
  CLI::App app(kAbout, "sluice-run");
  app.set_version_flag("--version", std::string(api::version()));
  app.add_option("bundle", args.bundle, "a directory that sluice.save wrote, a tar archive of one, or a capture");
  add_run_options(app, args);
  const std::vector<CLI::Option*> of_a_run = app.get_options();
  CLI::Option* const verified = app.add_option(
      "--verify", args.verify, "FILE.json: run what --audit wrote again, and compare; BUNDLE may say where it is now");
  for (CLI::Option* option : of_a_run)
    if (!option->get_lnames().empty() && option->get_lnames()[0] != "help" && option->get_lnames()[0] != "version")
      verified->excludes(option);
  app.add_option("--key", args.key, "FILE: signs the record of --audit, and tells who signed that of --verify");
  app.add_option("--extension", args.extensions, "a shared library with ops of your own")->take_all();
  app.add_option("--backend", args.backends, "a library with a device of your own, or a foreign backend")->take_all();
  app.add_flag("--quiet", args.quiet, "show no results");
  app.footer(
      "Exit status: 0; 1 after an error; 2 where results differ from those expected or captured, or --verify finds a "
      "difference.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {  // help is one, too
    return app.exit(e) == 0 ? 0 : 1;
  }
  try {
    if (!args.verify.empty()) return verify(args);
    SLUICE_CHECK(!args.bundle.empty(), "BUNDLE is not given; it must be a directory that sluice.save wrote");
    if (run::is_capture(args.bundle)) {
      check_options_of_capture(args);
      return run_capture(args);
    }
    if (!args.info) return run_bundle(args);
    print_info(args);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "sluice-run: {}\n", error.what());
    return 1;
  }
}
