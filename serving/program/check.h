#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sluice::serving {

struct CheckArguments {
  std::vector<std::string> repositories, models;
  // The limits that the server will be given.
  uint64_t memory_limit = 0, response_cache_bytes = 0;
  std::map<std::string, uint32_t> rate_limits;
  bool follow_links = false;
  bool load = false;
  bool json = false;  // for programs, plan-viz among them, instead of the table
};

// `sluice-serve check`: prints a table of models, versions, ports and bytes, and every problem. Returns the exit
// status.
int check(const CheckArguments& args);

}  // namespace sluice::serving
