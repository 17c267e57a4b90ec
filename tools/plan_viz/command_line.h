#pragma once
// The arguments of plan-viz, and its commands.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/time/simulator.h"
#include "tools/plan_viz/completion.h"
#include "tools/plan_viz/debug/shell.h"
#include "tools/plan_viz/live.h"
#include "tools/plan_viz/partition.h"
#include "tools/plan_viz/sbp_view.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

struct Arguments {
  std::string path, output, costs, plan, other, trace, name, by = "actor", shell, counters = "/sys/class/powercap";
  std::vector<std::string> source;  // folders
  ServedOptions served;
  double tolerance = 1e-5;
  bool json = false;
  TextOptions text;
  plan::SimulateOptions simulate;
  double firing_us = 0, message_us = 0;
  int cores = -1;
  uint64_t step = 0;
  double quantile = 1;
  int slots = 0;
  LiveOptions live;
  DebugOptions debug;
  PartitionOptions partition;
  SbpViewOptions sbp;
};

// Adds the commands and their options, which write to `args`.
void add_commands(CLI::App& app, Arguments& args);

// The same for shells: names, helps and options.
std::vector<CommandWords> words_of(const CLI::App& app);

}  // namespace sluice::plan_viz
