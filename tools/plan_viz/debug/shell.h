#pragma once
// plan-viz debug: runs a bundle one firing at a time, as commands say.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan_viz/views.h"
#include "tools/sluice_run/values.h"

namespace sluice::plan_viz {

struct DebugOptions {
  std::string bundle, script;  // no script: the standard input
  run::InputArguments input;
  int64_t steps = 1;
  int cores = 0;
  std::optional<uint64_t> shuffle;
  std::vector<std::string> extensions, backends;
  bool json = false;
  TextOptions text;
};

// The text that `help` prints, and `--help` below the options.
std::string debug_commands();

// Returns the exit status. Throws for a bundle that cannot be run, and, of a script, for the first command that is
// wrong, naming its line.
int debug_bundle(const DebugOptions& options);

}  // namespace sluice::plan_viz
