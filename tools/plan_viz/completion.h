#pragma once
// Scripts by which shells complete the commands and options of the program.
#include <string>
#include <vector>

namespace sluice::plan_viz {

inline constexpr const char* kShells[] = {"bash", "zsh", "fish"};

struct CommandWords {
  std::string name, help;
  std::vector<std::string> options;  // "--json", "-o"
};
// A script for one of kShells.
std::string completion(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace sluice::plan_viz
