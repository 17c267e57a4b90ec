#include "base/option.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

std::vector<std::string> accepted_texts(const OptionFacts& facts) {
  std::vector<std::string> texts;
  std::string_view left = facts.accepts;
  while (!left.empty()) {
    const std::string_view text = left.substr(0, left.find_first_of(", "));
    texts.emplace_back(text);
    left.remove_prefix(text.size());
    for (const std::string_view between : {", ", " or "})
      if (left.starts_with(between)) left.remove_prefix(between.size());
  }
  return texts;
}

void check_text(const OptionFacts& facts, const std::string& value, const std::string& initial) {
  const std::vector<std::string> texts = accepted_texts(facts);
  if (texts.empty() || std::find(texts.begin(), texts.end(), value) != texts.end()) return;
  refuse_option(fmt::format("{}: \"{}\"; must be {}", facts.name, value, facts.accepts),
                {{"option", std::string(facts.name)}, {"value", initial}});
}

void check_number(const OptionFacts& facts, int64_t value) {
  if (value >= facts.least) return;
  const std::string zero = facts.zero.empty() ? "" : fmt::format(" (0 = {})", facts.zero);
  refuse_option(fmt::format("{}: {}; must be at least {}{}", facts.name, value, facts.least, zero),
                {{"option", std::string(facts.name)}, {"value", facts.least}});
}

void refuse_option(const std::string& message, Fix fix) {
  throw FixableError(ErrorKind::kValue, message, std::move(fix));
}

}  // namespace sluice
