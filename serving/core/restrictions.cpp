#include "serving/core/restrictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace sluice::serving {

namespace {

constexpr std::array<std::pair<std::string_view, Api>, 9> kNames = {{{"health", Api::kHealth},
                                                                     {"metadata", Api::kMetadata},
                                                                     {"inference", Api::kInference},
                                                                     {"shared-memory", Api::kSharedMemory},
                                                                     {"model-config", Api::kModelConfig},
                                                                     {"model-repository", Api::kModelRepository},
                                                                     {"statistics", Api::kStatistics},
                                                                     {"trace", Api::kTrace},
                                                                     {"logging", Api::kLogging}}};

}  // namespace

void parse_restriction(const std::string& option, const std::string& text, Restrictions& restrictions) {
  const auto refuse = [&](const std::string& what) {
    // The value may be secret, so it is not told.
    throw std::runtime_error(fmt::format("{}: '{}': {}", option, text.substr(0, text.find('=')), what));
  };
  const size_t colon = text.find(':'), equals = text.find('=', colon == std::string::npos ? 0 : colon);
  if (colon == std::string::npos || equals == std::string::npos || equals == colon + 1 || equals + 1 == text.size())
    refuse("it must be APIS:HEADER=VALUE, as in model-repository,logging:admin-key=secret");
  Restriction restriction{text.substr(colon + 1, equals - colon - 1), text.substr(equals + 1)};
  std::transform(restriction.header.begin(), restriction.header.end(), restriction.header.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (!std::all_of(restriction.header.begin(), restriction.header.end(),
                   [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; }))
    refuse("the header's name has letters, digits, '-' and '_'");
  for (size_t at = 0; at <= colon;) {
    const size_t end = std::min(text.find(',', at), colon);
    const std::string name = text.substr(at, end - at);
    const auto* const known =
        std::find_if(kNames.begin(), kNames.end(), [&](const auto& entry) { return entry.first == name; });
    if (known == kNames.end())
      refuse(
          fmt::format("'{}' is no group of calls; there are health, metadata, inference, shared-memory, "
                      "model-config, model-repository, statistics, trace and logging",
                      name));
    if (!restrictions.emplace(known->second, restriction).second)
      refuse(fmt::format("'{}' is restricted twice; a group of calls has one header", name));
    at = end + 1;
  }
}

}  // namespace sluice::serving
