#include "serving/repository/config.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <map>
#include <set>

#include "serving/core/error.h"
#include "serving/core/log.h"
#include "serving/repository/names.h"
#include "serving/repository/text_errors.h"

namespace sluice::serving {

namespace {

using inference::ModelConfig;

std::string where(const std::string& model, const char* field) {
  return fmt::format("model '{}': {}: ", shown(model), field);
}

void check_versions(const std::string& model, ModelConfig& config) {
  if (config.has_version_policy() && config.version_policy().has_specific()) {
    const auto& versions = config.version_policy().specific().versions();
    if (versions.empty()) wrong(where(model, "version_policy") + "specific: no versions; name at least one");
    for (const int64_t version : versions)
      if (version < 0)
        wrong(fmt::format("{}specific: {}; versions are 0 and more", where(model, "version_policy"), version));
    return;
  }
  if (config.version_policy().has_all()) return;
  auto& latest = *config.mutable_version_policy()->mutable_latest();
  if (latest.num_versions() == 0) latest.set_num_versions(1);
}

void check_backend(const std::string& model, ModelConfig& config) {
  const bool ensemble = config.has_ensemble_scheduling();
  const std::string backend = ensemble ? "" : "sluice", platform = ensemble ? "ensemble" : "sluice";
  // OneFlow's models are saved anew for Sluice; their configs can stay.
  if (config.backend() == "oneflow") config.clear_backend();
  if (!config.backend().empty() && config.backend() != backend)
    wrong(fmt::format("{}'{}'; {}", where(model, "backend"), shown(config.backend()),
                      ensemble ? "an ensemble has none" : "models here are bundles of sluice.save: 'sluice'"));
  if (!config.platform().empty() && config.platform() != platform)
    wrong(
        fmt::format("{}'{}'; must be '{}' or left out", where(model, "platform"), shown(config.platform()), platform));
  config.set_backend(backend);
  config.set_platform(platform);
  const auto xrt = config.parameters().find("xrt");
  if (xrt == config.parameters().end()) return;
  static const std::vector<std::string> kKnown = {"", "none", "xla", "tensorrt", "openvino"};
  if (std::find(kKnown.begin(), kKnown.end(), xrt->second.string_value()) == kKnown.end())
    wrong(fmt::format("{}'{}'; it may be 'none', 'xla', 'tensorrt' or 'openvino', and changes nothing here",
                      where(model, "parameters.xrt"), shown(xrt->second.string_value())));
  log_warning(where(model, "parameters.xrt") + "the bundle is run as Sluice planned it, whatever this says");
}

void check_files(const std::string& model, const ModelConfig& config) {
  const auto check = [&](const char* field, const std::string& name) {
    if (!name.empty()) check_file_name(fmt::format("model '{}': {}", shown(model), field), name);
  };
  check("default_model_filename", config.default_model_filename());
  for (const auto& output : config.output()) check("label_filename", output.label_filename());
  for (const auto& warmup : config.model_warmup())
    for (const auto& [name, input] : warmup.inputs()) check("input_data_file", input.input_data_file());
  for (const auto& state : config.sequence_batching().state())
    for (const auto& initial : state.initial_state()) check("data_file", initial.data_file());
}

// Checks what the config alone says of inputs without padding; the bundle's side is looked at with its ports.
void check_ragged(const std::string& model, const ModelConfig& config) {
  std::map<std::string, bool> inputs;  // is it ragged?
  bool any = false;
  for (const auto& input : config.input()) {
    inputs[input.name()] = input.allow_ragged_batch();
    any = any || input.allow_ragged_batch();
  }
  const auto refuse = [&](const char* field, const std::string& what) { wrong(where(model, field) + what); };
  const auto check_names = [&](const char* field, const auto& entry) {
    if (entry.target_name_size() != 1 || entry.source_input_size() != 1)
      refuse(field, fmt::format("{} target_name and {} source_input; each kind has one of both",
                                entry.target_name_size(), entry.source_input_size()));
    const auto source = inputs.find(entry.source_input(0));
    if (source == inputs.end() || !source->second)
      refuse(field, fmt::format("source_input '{}'; it must be an input with allow_ragged_batch",
                                shown(entry.source_input(0))));
  };
  std::set<std::string> made;
  for (const auto& entry : config.batch_input()) {
    check_names("batch_input", entry);
    const std::string& target = entry.target_name(0);
    if (inputs.contains(target))
      refuse("batch_input", fmt::format("target_name '{}' is an input of clients, too", shown(target)));
    if (!made.insert(target).second)
      refuse("batch_input", fmt::format("target_name '{}' is there twice", shown(target)));
    if (entry.data_type() != inference::TYPE_INT32 && entry.data_type() != inference::TYPE_INT64 &&
        entry.data_type() != inference::TYPE_FP32)
      refuse("batch_input", fmt::format("target_name '{}': data_type {}; must be TYPE_INT32, TYPE_INT64 or TYPE_FP32",
                                        shown(target), inference::DataType_Name(entry.data_type())));
  }
  for (const auto& entry : config.batch_output()) check_names("batch_output", entry);
  if (!any) return;
  if (config.max_batch_size() < 1)
    refuse("allow_ragged_batch", "max_batch_size is 0; it must be how many requests a step takes at most");
  if (config.has_sequence_batching() || config.has_ensemble_scheduling())
    refuse("allow_ragged_batch", "models with sequences, and ensembles, are batched otherwise; use dynamic_batching");
  for (const auto& input : config.input())
    if (input.allow_ragged_batch() && (input.has_reshape() || input.data_type() == inference::TYPE_STRING))
      refuse("allow_ragged_batch", fmt::format("input '{}' is of {}; only numbers in their own shape are batched so",
                                               shown(input.name()), input.has_reshape() ? "a reshape" : "texts"));
}

void check_ensemble(const std::string& model, const ModelConfig& config) {
  if (!config.has_ensemble_scheduling()) return;
  if (config.ensemble_scheduling().step().empty())
    wrong(where(model, "ensemble_scheduling") + "no step; an ensemble has at least one");
  for (const auto& step : config.ensemble_scheduling().step()) {
    check_model_name(where(model, "ensemble_scheduling") + "step", step.model_name());
    if (step.model_name() == model) wrong(where(model, "ensemble_scheduling") + "a step is the ensemble itself");
    if (step.model_version() < -1)
      wrong(fmt::format("{}step '{}': model_version {}; must be -1 for the newest, or a version",
                        where(model, "ensemble_scheduling"), step.model_name(), step.model_version()));
  }
  if (config.input().empty() || config.output().empty())
    wrong(where(model, "ensemble_scheduling") + "an ensemble's inputs and outputs must be in its config");
}

}  // namespace

namespace {

void warn_of_tuning(const std::string& model, const std::string& field) {
  log_warning(fmt::format("model '{}': {}: it tunes what is not here, and changes nothing", shown(model), field));
}

// A text that is no JSON is left to the parser of messages, which says why.
std::string without_tuning(const std::string& model, const std::string& json) {
  boost::json::parse_options options;
  options.max_depth = 32;
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(json, error, {}, options);
  if (error || !value.is_object()) return json;
  bool changed = false;
  const auto pass_over = [&](boost::json::object& object, const char* message) {
    std::vector<std::string> names;
    for (const auto& [name, field] : object)
      if (only_tunes(message, std::string(name))) names.emplace_back(name);
    for (const std::string& name : names) {
      object.erase(name);
      warn_of_tuning(model, "'" + name + "'");
      changed = true;
    }
  };
  pass_over(value.get_object(), "inference.ModelConfig");
  if (auto* const groups = value.get_object().if_contains("instance_group"); groups != nullptr && groups->is_array())
    for (boost::json::value& group : groups->get_array())
      if (group.is_object()) pass_over(group.get_object(), "inference.ModelInstanceGroup");
  return changed ? boost::json::serialize(value) : json;
}

}  // namespace

ModelConfig config_from_text(const std::string& model, const std::string& text) {
  ModelConfig config;
  std::vector<std::string> passed_over;
  const std::string errors = parse_text(text, "config.pbtxt", config, passed_over);
  if (!errors.empty()) wrong(fmt::format("model '{}': {}", shown(model), errors));
  for (const std::string& field : passed_over) warn_of_tuning(model, field);
  return config;
}

ModelConfig config_from_json(const std::string& model, const std::string& json) {
  ModelConfig config;
  if (json.size() > kLargestConfig)
    throw Error(Code::kTooLarge, fmt::format("model '{}': config of the load request: {} bytes; at most {}",
                                             shown(model), json.size(), kLargestConfig));
  const auto status = google::protobuf::util::JsonStringToMessage(without_tuning(model, json), &config);
  if (!status.ok()) {
    const std::string text(status.message());
    wrong(fmt::format("model '{}': config of the load request: {}", shown(model),
                      shown(text.substr(0, text.find('\n')))));
  }
  return config;
}

void check_config(const std::string& model, ModelConfig& config) {
  if (config.name().empty()) config.set_name(model);
  if (config.name() != model)
    wrong(
        fmt::format("{}'{}'; must be '{}', as the model is called", where(model, "name"), shown(config.name()), model));
  if (config.max_batch_size() < 0)
    wrong(fmt::format("{}{}; must be 0 or more", where(model, "max_batch_size"), config.max_batch_size()));
  check_versions(model, config);
  check_backend(model, config);
  check_files(model, config);
  check_ragged(model, config);
  check_ensemble(model, config);
  labels_of(config);
}

void check_label(const std::string& where, const std::string& label) {
  if (!is_model_name(label) || std::all_of(label.begin(), label.end(), [](char c) { return c >= '0' && c <= '9'; }))
    wrong(fmt::format("{}: label '{}'; it must be of letters, digits, '.', '_' and '-', and no number", where,
                      shown(label)));
}

std::map<std::string, int64_t> labels_of(const ModelConfig& config) {
  std::map<std::string, int64_t> labels;
  const auto found = config.parameters().find("version_labels");
  if (found == config.parameters().end()) return labels;
  const std::string here = fmt::format("model '{}': parameters.version_labels", config.name());
  std::string_view rest = found->second.string_value();
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    const size_t colon = item.find(':');
    const auto version = colon == std::string_view::npos ? std::nullopt : version_of(item.substr(colon + 1));
    if (!version) wrong(fmt::format("{}: '{}'; must be like 'stable:2,canary:3'", here, shown(item)));
    const std::string label(item.substr(0, colon));
    check_label(here, label);
    if (!labels.emplace(label, *version).second) wrong(fmt::format("{}: '{}' is there twice", here, label));
  }
  return labels;
}

}  // namespace sluice::serving
