#include "base/fused_steps.h"

#include <charconv>

#include "base/error.h"

namespace sluice {
namespace {

// The part of `text` before `mark`, which is taken off together with the mark.
std::string_view take(std::string_view& text, std::string_view mark) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + mark.size(), text.size()));
  return part;
}

FusedStep parse_step(std::string_view call, int values) {
  const std::string whole(call);
  FusedStep step;
  std::string_view name = take(call, " ");
  step.op = take(name, ":");
  step.mode = name;
  while (!call.empty()) {
    const std::string_view word = take(call, " ");
    int& operand = step.operands.emplace_back(-1);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), operand);
    SLUICE_CHECK(error == std::errc() && end == word.data() + word.size() && operand >= 0 && operand < values,
                 "steps: '{}' in \"{}\"; must be the number of an input or of a step before, below {}", word, whole,
                 values);
  }
  SLUICE_CHECK(!step.op.empty() && !step.operands.empty(), "steps: \"{}\"; must be \"op operand...\"", whole);
  return step;
}

}  // namespace

std::string fused_text(const std::vector<FusedStep>& steps) {
  std::string text;
  for (const FusedStep& step : steps) {
    text += (text.empty() ? "" : "; ") + step.op + (step.mode.empty() ? "" : ":" + step.mode);
    for (int operand : step.operands) text += " " + std::to_string(operand);
  }
  return text;
}

std::vector<FusedStep> parse_fused(std::string_view text, int num_inputs) {
  std::vector<FusedStep> steps;
  while (!text.empty()) steps.push_back(parse_step(take(text, "; "), num_inputs + static_cast<int>(steps.size())));
  SLUICE_CHECK(!steps.empty(), "steps: \"\"; must have a step");
  return steps;
}

}  // namespace sluice
