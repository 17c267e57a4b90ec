#include "serving/repository/text_errors.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "serving/repository/names.h"

namespace sluice::serving {

namespace {

constexpr int kDeepestMessage = 32, kMostErrors = 4;

struct Field {
  std::string_view message, name;
};
constexpr Field kTuning[] = {{"inference.ModelConfig", "optimization"},
                             {"inference.ModelInstanceGroup", "host_policy"},
                             {"inference.ModelInstanceGroup", "profile"}};

class Collector final : public google::protobuf::io::ErrorCollector {
 public:
  Collector(const std::string& file, std::vector<std::string>& passed_over) : file_(file), passed_over_(passed_over) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (errors_++ < kMostErrors)
      text += fmt::format("{}{}:{}:{}: {}", text.empty() ? "" : "; ", file_, line + 1, column + 1, shown(message));
  }
  // The parser warns of fields that do not exist. Those of kTuning are passed over, all others are errors.
  void AddWarning(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    for (const Field& field : kTuning) {
      if (message != fmt::format("Message type \"{}\" has no field named \"{}\".", field.message, field.name)) continue;
      passed_over_.push_back(fmt::format("{}:{}: '{}'", file_, line + 1, field.name));
      return;
    }
    AddError(line, column, message);
  }
  std::string text;

 private:
  const std::string& file_;
  std::vector<std::string>& passed_over_;
  int errors_ = 0;
};

}  // namespace

bool only_tunes(const std::string& message, const std::string& field) {
  return std::any_of(std::begin(kTuning), std::end(kTuning),
                     [&](const Field& known) { return known.message == message && known.name == field; });
}

std::string parse_text(const std::string& text, const std::string& file, google::protobuf::Message& to,
                       std::vector<std::string>& passed_over) {
  Collector errors(file, passed_over);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kDeepestMessage);
  parser.AllowUnknownField(true);  // the collector looks at each
  if (parser.ParseFromString(text, &to) && errors.text.empty()) return "";
  return errors.text.empty() ? file + ": it cannot be read" : errors.text;
}

}  // namespace sluice::serving
