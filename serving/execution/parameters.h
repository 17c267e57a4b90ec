#pragma once
// Reads the `parameters` of a config, which are words.
#include <string>
#include <utility>
#include <vector>

#include "model_config.pb.h"

namespace sluice::serving {

// "" where it is not there.
std::string parameter_text(const inference::ModelConfig& config, const std::string& key);
// "true" or "false"; `otherwise` where it is not there. Throws kInvalidArgument for what is neither.
bool parameter_switch(const inference::ModelConfig& config, const std::string& key, bool otherwise);
// Pairs, as in "next:x, state:state", which `example` shows. Throws kInvalidArgument for what is none.
std::vector<std::pair<std::string, std::string>> parameter_pairs(const inference::ModelConfig& config,
                                                                 const std::string& key, const std::string& example);

// Reads "string_lengths": an input or output of strings as clients know it, and the bundle's input that gets the length
// of each string in bytes, or its output that tells them.
std::vector<std::pair<std::string, std::string>> string_lengths_of(const inference::ModelConfig& config);

}  // namespace sluice::serving
