#pragma once
// Levels as the command line writes them.
#include <string>
#include <vector>

namespace sluice::perf {

struct SweepValue {
  double value = 0;
  bool percent = false;  // of the peak that a closed loop reaches
};

// Parses "4", "1:8", "1:8:2", "1,2,4,8", "70%,200%". Throws std::runtime_error naming what is wrong.
std::vector<SweepValue> parse_sweep(const std::string& text);

}  // namespace sluice::perf
