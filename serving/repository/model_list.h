#pragma once
// The file that lists models by name and folder.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model_config.pb.h"

namespace sluice::serving {

struct ListedModel {
  std::string name, base_path;
  std::optional<inference::ModelVersionPolicy> policy;
  std::map<std::string, int64_t> labels;
};
// None of "". Throws kNotFound, and kInvalidArgument with line and column.
std::vector<ListedModel> read_model_list(const std::string& path);

}  // namespace sluice::serving
