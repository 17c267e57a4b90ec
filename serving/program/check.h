#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::serving {

struct CheckArguments {
  std::vector<std::string> repositories, models;
  uint64_t memory_limit = 0;
  bool load = false;
  bool json = false;  // for programs, plan-viz among them, instead of the table
};

// `sluice-serve check`: prints a table of models, versions, ports and bytes, and every problem. Returns the exit
// status.
int check(const CheckArguments& args);

}  // namespace sluice::serving
