// sluice-run: runs a bundle from the shell, on inputs from .npy files or numbers, without Python.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/files/sha256.h"
#include "include/sluice/sluice.hpp"
#include "tools/sluice_run/npy.h"
#include "tools/sluice_run/values.h"

namespace {

using namespace sluice;

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
    "  sluice-run out/net --fill=random --shuffle=7        actors get their messages in an order that 7 chooses";

struct Arguments {
  std::string bundle;
  run::InputArguments input;
  std::vector<std::string> outputs, expected, extensions, backends;
  double tolerance = 1e-5;
  int cores = 0;
  int64_t steps = 1;
  std::string record, replay;
  std::optional<uint64_t> shuffle;
  bool info = false, quiet = false, hash = false;
};

void print_ports(const char* what, const std::vector<api::Port>& ports) {
  for (const api::Port& port : ports) fmt::print("{:<8} {}\n", what, port.str());
}

void print_info(const Arguments& args) {
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

// The digest of all results so far: SHA-256 of the one before and of that of each tensor's bytes, both as text.
std::string followed_by(std::string digest, const std::vector<api::Tensor>& results) {
  for (const api::Tensor& result : results)
    digest = sha256_hex(digest + sha256_hex({static_cast<const char*>(result.raw()), result.bytes()}));
  return digest;
}

int run_bundle(const Arguments& args) {
  api::Engine engine({.cores = args.cores,
                      .record_messages = args.record,
                      .replay_messages = args.replay,
                      .shuffle_messages = args.shuffle});
  for (const std::string& path : args.backends) engine.load_backend(path);
  for (const std::string& path : args.extensions) engine.load_extension(path);
  if (args.info) {
    print_info(args);
    return 0;
  }
  api::Session session = api::Session::load(engine, args.bundle);
  const std::map<size_t, std::string> files = run::by_port(session.outputs(), args.outputs, "--output");
  const std::vector<api::Tensor> inputs = run::make_inputs(session.inputs(), args.input);
  std::string digest;
  std::vector<api::Tensor> results;
  for (int64_t step = 0; step < args.steps; ++step) {
    results = session.run(inputs);
    if (args.hash) digest = followed_by(std::move(digest), results);
  }
  if (args.hash) fmt::print("{}\n", digest);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto file = files.find(i);
    if (file != files.end()) run::write_npy(run::file_of(file->second), results[i]);
    if (!args.quiet && !args.hash && file == files.end())
      std::fputs(run::show(session.outputs()[i].name, results[i]).c_str(), stdout);
  }
  return compare(session.outputs(), results, args) > 0 ? kDiffers : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args;
  CLI::App app(kAbout, "sluice-run");
  app.set_version_flag("--version", std::string(api::version()));
  app.add_option("bundle", args.bundle, "a directory that sluice.save wrote, or a tar archive of one")->required();
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
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--hash", args.hash, "show nothing but a digest of the bytes of all results of all steps");
  CLI::Option* const replay =
      app.add_option("--replay", args.replay, "FILE: actors get their messages in the order that --record wrote");
  app.add_option("--record", args.record, "FILE: write the order in which actors get their messages, to --replay it");
  app.add_option("--shuffle", args.shuffle, "SEED: it chooses the order of messages; results are the same")
      ->excludes(replay);
  app.add_option("--cores", args.cores, "that kernels use; 0: all")->check(CLI::NonNegativeNumber);
  app.add_option("--extension", args.extensions, "a shared library with ops of your own")->take_all();
  app.add_option("--backend", args.backends, "a shared library with a device of your own")->take_all();
  app.add_flag("--info", args.info, "show inputs, outputs and memory, and run nothing");
  app.add_flag("--quiet", args.quiet, "show no results");
  app.footer("Exit status: 0; 1 after an error; 2 where results differ from those expected.");
  CLI11_PARSE(app, argc, argv);
  try {
    return run_bundle(args);
  } catch (const std::exception& error) {
    fmt::print(stderr, "sluice-run: {}\n", error.what());
    return 1;
  }
}
