#include <google/protobuf/text_format.h>

#include "fuzz_targets/targets.h"
#include "serving/core/error.h"
#include "serving/repository/config.h"

namespace sluice::fuzz {

namespace {

bool is_a_refusal(const serving::Error& error) {
  return error.code() == serving::Code::kInvalidArgument || error.code() == serving::Code::kUnsupported ||
         error.code() == serving::Code::kTooLarge;
}

}  // namespace

int config_text(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<api::Port> inputs = {{.name = "x", .shape = {8, 4}, .dims = {"batch", ""}}},
                               outputs = {{.name = "y", .shape = {8, 3}, .dims = {"batch", ""}}};
  try {
    inference::ModelConfig config = serving::config_from_text("m", text);
    serving::check_config("m", config);
    expect(config.name() == "m", "config_text: another name", text);
    serving::labels_of(config);
    if (!config.has_ensemble_scheduling()) serving::complete_config(config, inputs, outputs, true);
    // A whole text stays as it is.
    std::string printed;
    google::protobuf::TextFormat::PrintToString(config, &printed);
    inference::ModelConfig again = serving::config_from_text("m", printed);
    serving::check_config("m", again);
    if (!again.has_ensemble_scheduling()) serving::complete_config(again, inputs, outputs, false);
    std::string second;
    google::protobuf::TextFormat::PrintToString(again, &second);
    expect(second == printed, "config_text: not the same when it is read again", printed + "\n" + second);
  } catch (const serving::Error& error) {
    expect(is_a_refusal(error), "config_text: kind of a refusal", error.what());
    expect(std::string_view(error.what()).starts_with("model 'm': "), "config_text: the error names no model",
           error.what());
  }
  return 0;
}

}  // namespace sluice::fuzz
