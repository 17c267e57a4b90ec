#pragma once
// The content of config.pbtxt: read, looked through, and completed from the bundle. Everything that is wrong is thrown
// as Error(kInvalidArgument), or kUnsupported, naming the model and the field.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model_config.pb.h"
#include "sluice/plan.h"

namespace sluice::serving {

inline constexpr size_t kLargestConfig = size_t{1} << 20;

// Parses protobuf's text format; errors name line and column.
inference::ModelConfig config_from_text(const std::string& model, const std::string& text);
// Parses JSON, as clients send it along.
inference::ModelConfig config_from_json(const std::string& model, const std::string& json);

// Checks what needs no bundle: the model's name, the backend, names of files, versions. Fills in what has a default.
void check_config(const std::string& model, inference::ModelConfig& config);
// The labels of parameters { key: "version_labels" value: { string_value: "stable:2,canary:3" } }.
std::map<std::string, int64_t> labels_of(const inference::ModelConfig& config);
void check_label(const std::string& where, const std::string& label);

// Inputs and outputs, their types and dims, max_batch_size, one instance: what the config leaves open is as the bundle
// has it. `auto_config` false: refused instead, naming it. A tensor is called INPUT_<i> or OUTPUT_<i> where the config
// does not name it; the config may also use the bundle's own names.
void complete_config(inference::ModelConfig& config, const std::vector<api::Port>& inputs,
                     const std::vector<api::Port>& outputs, bool auto_config);

}  // namespace sluice::serving
