#include "serving/repository/text_errors.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "serving/repository/names.h"

namespace sluice::serving {

namespace {

constexpr int kDeepestMessage = 32, kMostErrors = 4;

class Collector final : public google::protobuf::io::ErrorCollector {
 public:
  explicit Collector(const std::string& file) : file_(file) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (errors_++ < kMostErrors)
      text += fmt::format("{}{}:{}:{}: {}", text.empty() ? "" : "; ", file_, line + 1, column + 1, shown(message));
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  std::string text;

 private:
  const std::string& file_;
  int errors_ = 0;
};

}  // namespace

std::string parse_text(const std::string& text, const std::string& file, google::protobuf::Message& to) {
  Collector errors(file);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kDeepestMessage);
  if (parser.ParseFromString(text, &to)) return "";
  return errors.text.empty() ? file + ": it cannot be read" : errors.text;
}

}  // namespace sluice::serving
