#include "serving/execution/parameters.h"

#include <fmt/format.h>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::string parameter_text(const inference::ModelConfig& config, const std::string& key) {
  const auto found = config.parameters().find(key);
  return found == config.parameters().end() ? "" : found->second.string_value();
}

bool parameter_switch(const inference::ModelConfig& config, const std::string& key, bool otherwise) {
  const std::string text = parameter_text(config, key);
  if (text.empty()) return otherwise;
  if (text != "true" && text != "false")
    wrong(fmt::format("model '{}': parameters.{}: '{}'; must be 'true' or 'false'", config.name(), key, text));
  return text == "true";
}

std::vector<std::pair<std::string, std::string>> parameter_pairs(const inference::ModelConfig& config,
                                                                 const std::string& key, const std::string& example) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const std::string text = parameter_text(config, key);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos)
      wrong(fmt::format("model '{}': parameters.{}: '{}'; must be like '{}'", config.name(), key, text, example));
    pairs.emplace_back(trimmed(item.substr(0, colon)), trimmed(item.substr(colon + 1)));
  }
  return pairs;
}

std::vector<std::pair<std::string, std::string>> string_lengths_of(const inference::ModelConfig& config) {
  return parameter_pairs(config, "string_lengths", "text:text_lengths");
}

}  // namespace sluice::serving
