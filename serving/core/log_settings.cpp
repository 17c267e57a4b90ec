#include <fmt/format.h>

#include "serving/core/log.h"
#include "serving/core/settings.h"

namespace sluice::serving {

namespace {

using Value = inference::LogSettingsRequest::SettingValue;

[[noreturn]] void wrong_log_setting(const std::string& name, const char* what) {
  throw Error(Code::kInvalidArgument, fmt::format("logging: '{}' must be {}", name, what));
}

bool switch_of(const std::string& name, const Value& value) {
  if (!value.has_bool_param()) wrong_log_setting(name, "true or false");
  return value.bool_param();
}

void set(LogSettings& settings, const std::string& name, const Value& value) {
  if (name == "log_info") {
    settings.info = switch_of(name, value);
  } else if (name == "log_warning") {
    settings.warning = switch_of(name, value);
  } else if (name == "log_error") {
    settings.error = switch_of(name, value);
  } else if (name == "log_verbose_level") {
    if (!value.has_uint32_param()) wrong_log_setting(name, "a number that is not negative");
    settings.verbose_level = value.uint32_param();
  } else if (name == "log_format") {
    const std::string& format = value.string_param();
    if (!value.has_string_param() || (format != "default" && format != "ISO8601"))
      wrong_log_setting(name, "'default' or 'ISO8601'");
    settings.iso8601 = format == "ISO8601";
  } else if (name == "log_file") {
    throw Error(Code::kUnsupported, "logging: 'log_file' is set when the server is started, and not by clients");
  } else {
    throw Error(Code::kInvalidArgument, fmt::format("logging: '{}' is no setting; there are log_info, log_warning, "
                                                    "log_error, log_verbose_level and log_format",
                                                    name));
  }
}

}  // namespace

inference::LogSettingsResponse apply_log_settings(const inference::LogSettingsRequest& request) {
  LogSettings settings = log_settings();
  for (const auto& [name, value] : request.settings()) {
    if (value.parameter_choice_case() != Value::PARAMETER_CHOICE_NOT_SET) set(settings, name, value);
  }
  if (!request.settings().empty()) set_log_settings(settings);
  inference::LogSettingsResponse response;
  auto& told = *response.mutable_settings();
  const std::string file = log_file();
  told["log_file"].set_string_param(file.substr(file.rfind('/') + 1));  // its folder is not the clients' business
  told["log_info"].set_bool_param(settings.info);
  told["log_warning"].set_bool_param(settings.warning);
  told["log_error"].set_bool_param(settings.error);
  told["log_verbose_level"].set_uint32_param(settings.verbose_level);
  told["log_format"].set_string_param(settings.iso8601 ? "ISO8601" : "default");
  return response;
}

}  // namespace sluice::serving
