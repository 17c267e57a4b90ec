#include "serving/repository/model_list.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <fstream>
#include <set>

#include "model_list.pb.h"
#include "serving/core/error.h"
#include "serving/repository/config.h"
#include "serving/repository/names.h"
#include "serving/repository/text_errors.h"

namespace sluice::serving {

std::vector<ListedModel> read_model_list(const std::string& path) {
  std::vector<ListedModel> models;
  if (path.empty()) return models;
  const std::string here = "model config file";
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Code::kNotFound, fmt::format("{} '{}': it cannot be read", here, shown(path)));
  std::string text(kLargestConfig + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kLargestConfig)
    throw Error(Code::kTooLarge, fmt::format("{}: more than {} bytes", here, kLargestConfig));
  inference::ModelServerConfig list;
  std::vector<std::string> passed_over;  // lists have nothing that tunes
  const std::string errors = parse_text(text, here, list, passed_over);
  if (!errors.empty()) throw Error(Code::kInvalidArgument, errors);
  std::set<std::string> names;
  for (const auto& config : list.model_config_list().config()) {
    check_model_name(here, config.name());
    const std::string model = fmt::format("{}: model '{}': ", here, config.name());
    if (!names.insert(config.name()).second) throw Error(Code::kInvalidArgument, model + "it is there twice");
    if (config.base_path().empty() || config.base_path().front() != '/')
      throw Error(Code::kInvalidArgument,
                  fmt::format("{}base_path '{}'; must be an absolute path", model, shown(config.base_path())));
    if (!config.model_platform().empty() && config.model_platform() != "sluice")
      throw Error(Code::kInvalidArgument, fmt::format("{}model_platform '{}'; must be 'sluice' or left out", model,
                                                      shown(config.model_platform())));
    ListedModel listed{config.name(), config.base_path(), std::nullopt, {}};
    if (config.has_model_version_policy()) listed.policy = config.model_version_policy();
    for (const auto& [label, version] : config.version_labels()) {
      check_label(model + "version_labels", label);
      listed.labels[label] = version;
    }
    models.push_back(std::move(listed));
  }
  return models;
}

}  // namespace sluice::serving
