// compile.*: seconds to compile training graphs of 1k, 4k, 10k and 16k ops for the cpu. Usage: compile_bench [PREFIX]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "compiler/compiler.h"
#include "compiler/nets.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/target.h"

namespace {

double compile_seconds(const sluice::graph::Graph& graph, const sluice::plan::Target& target) {
  const auto begin = std::chrono::steady_clock::now();
  sluice::compile(graph, target, {});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void report(const std::string& name, const sluice::graph::Graph& graph, const sluice::plan::Target& target) {
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) seconds.push_back(compile_seconds(graph, target));
  std::sort(seconds.begin(), seconds.end());
  fmt::print(
      "{{\"name\": \"{}\", \"ours\": {}, \"peer\": null, \"peer_name\": \"none\", \"unit\": \"s\", \"ratio\": null, "
      "\"n\": 3, "
      "\"spread\": {}, \"command\": \"make bench ONLY={}\", \"ops\": {}}}\n",
      name, seconds[1], (seconds[2] - seconds[0]) / 2 / seconds[1], name, graph.nodes().size());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  sluice::KernelTable table;
  sluice::add_cpu_kernels(table);
  const sluice::KernelTarget target(table, {{.device = {}, .cores = 2}});
  for (const int ops : {1000, 4000, 10000, 16000}) {
    const std::string size = fmt::format("compile.{}k", ops / 1000);
    if (const std::string name = size + ".conv"; name.starts_with(only))
      report(name, sluice::conv_net(ops, true), target);
    if (const std::string name = size + ".transformer"; name.starts_with(only))
      report(name, sluice::transformer(ops, true), target);
  }
}
