// mesh.scale.*: a training step of a GPT with 96 layers, as large as GPT-3, for many devices on paper: one plan of
// classes of ranks is compiled, verified and simulated. Usage: mesh_scale RANKS [all]
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "compiler/mesh_gpt.h"
#include "compiler/rank_classes.h"
#include "plan/ranks.h"
#include "plan/time/simulator.h"

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Tensors are split over one host of 8, batches over hosts.
const std::map<int, sluice::GptSizes> kSizes = {
    {8, {.dp = 1, .tp = 8}},      {64, {.dp = 8, .tp = 8}},       {512, {.dp = 64, .tp = 8}},
    {4096, {.dp = 512, .tp = 8}}, {32768, {.dp = 4096, .tp = 8}},
};

int run(int ranks, bool all) {
  const auto known = kSizes.find(ranks);
  if (known == kSizes.end()) {
    fmt::print(stderr, "mesh_scale: {} ranks; must be 8, 64, 512, 4096 or 32768\n", ranks);
    return 2;
  }
  sluice::GptSizes sizes = known->second;
  sizes.layers = 96;
  sizes.hidden = 12288;
  sizes.heads = 96;
  sizes.length = 2048;
  sizes.vocabulary = 50304;
  sizes.micro = 2;
  sizes.batch = sizes.dp;
  const sluice::MeshGpt gpt = sluice::mesh_gpt(sizes);
  const sluice::PaperTarget target(all ? ranks : sizes.pp);
  auto begin = Clock::now();
  const sluice::CompileResult made =
      all ? sluice::compile(gpt.graph, target, gpt.options) : sluice::compile_classes(gpt.graph, target, gpt.options);
  double check = 0;
  for (const sluice::PassReport& pass : made.passes) {
    if (pass.name == "check") check += pass.seconds;
    if (std::getenv("SLUICE_MESH_PASSES")) fmt::print(stderr, "{:<24} {:.3f}\n", pass.name, pass.seconds);
  }
  const double compile = seconds_since(begin) - check;
  const size_t kernels = made.plan.kernels.size(), actors = made.plan.actors.size();
  begin = Clock::now();
  const sluice::plan::Machine machine{{{"*", "*", 10e3, 50e9}}};
  const sluice::plan::Plan costs = sluice::plan::on_machine(sluice::plan::side_by_side(made.plan), machine);
  const sluice::plan::Simulation simulation = sluice::plan::simulate(costs, {.steps = 4});
  const double simulate = seconds_since(begin);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{{\"ranks\": {}, \"dp\": {}, \"tp\": {}, \"pp\": {}, \"nodes\": {}, \"kernels\": {}, \"actors\": {}, "
      "\"compile_s\": {:.3f}, \"verify_s\": {:.3f}, \"simulate_s\": {:.3f}, \"total_s\": {:.3f}, \"peak_mb\": {:.1f}, "
      "\"step_ms\": {:.3f}}}\n",
      ranks, sizes.dp, sizes.tp, sizes.pp, gpt.graph.nodes().size(), kernels, actors, compile, check, simulate,
      compile + check + simulate, static_cast<double>(usage.ru_maxrss) / 1024, simulation.period_ns / 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 && std::string(argv[2]) == "all");
  } catch (const sluice::Error& error) {
    fmt::print(stderr, "mesh_scale: {}\n", error.what());
    return 1;
  }
}
