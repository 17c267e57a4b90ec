#include "tools/sluice_info/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

extern const char kTroublesText[];  // troubles.txt, in a file that CMake makes

namespace sluice::info {
namespace {

std::vector<Trouble> read(std::string_view text) {
  std::vector<Trouble> found;
  std::string prefix, section;
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with("## ")) {
      const size_t space = line.find(' ', 3);
      prefix = line.substr(3, space - 3);
      section = line.substr(space + 1);
      number = 0;
    } else if (!line.empty() && !line.starts_with("#")) {
      const size_t because = line.find(" | "), remedy = line.find(" | ", because + 3);
      found.push_back({fmt::format("{}{:02}", prefix, ++number), section, std::string(line.substr(0, because)),
                       std::string(line.substr(because + 3, remedy - because - 3)),
                       std::string(line.substr(remedy + 3))});
    }
  }
  return found;
}

std::string with_case(std::string_view text, int (*convert)(int)) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(convert(static_cast<unsigned char>(c)));
  return result;
}

std::string lower(std::string_view text) { return with_case(text, std::tolower); }

// The entries, those with the longest texts first; of equally long ones, in their order.
std::vector<const Trouble*> longest_first() {
  std::vector<const Trouble*> sorted;
  for (const Trouble& trouble : troubles()) sorted.push_back(&trouble);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Trouble* a, const Trouble* b) { return a->text.size() > b->text.size(); });
  return sorted;
}

// The entry whose text the message contains; of several, what comes first in it, and then the longest.
const Trouble* find_in(std::string_view message) {
  const Trouble* found = nullptr;
  size_t first = std::string_view::npos;
  for (const Trouble* trouble : longest_first())
    if (const size_t at = message.find(trouble->text); at < first) {
      first = at;
      found = trouble;
    }
  return found;
}

// The same without regard to case, or the entry of whose text the message is a part.
const Trouble* find_loosely(std::string_view message) {
  const std::string wanted = lower(message);
  for (const Trouble* trouble : longest_first()) {
    const std::string text = lower(trouble->text);
    if (wanted.find(text) != std::string::npos || (wanted.size() > 5 && text.find(wanted) != std::string::npos))
      return trouble;
  }
  return nullptr;
}

// The likeness of two texts: from 0 to 1, by the length of their longest common subsequence.
double likeness(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1), before;
  for (const char x : a) {
    before = row;
    for (size_t j = 0; j < b.size(); ++j) row[j + 1] = x == b[j] ? before[j] + 1 : std::max(before[j + 1], row[j]);
  }
  return 2.0 * row.back() / static_cast<double>(std::max<size_t>(a.size() + b.size(), 1));
}

std::string nearest(std::string_view words) {
  std::vector<std::pair<double, const Trouble*>> near;
  for (const Trouble& trouble : troubles())
    if (const double like = likeness(words, trouble.text); like >= 0.6) near.emplace_back(like, &trouble);
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  near.resize(std::min<size_t>(near.size(), 3));
  std::string text;
  for (const auto& [like, trouble] : near) text += (text.empty() ? ". The nearest: " : "; ") + trouble->text;
  return text;
}

// Without Markdown: code as it is, and of a link the file it leads to.
std::string plain(std::string_view markdown) {
  std::string text;
  while (!markdown.empty()) {
    const size_t middle = markdown.find("]("), end = markdown.find(')', middle);
    if (markdown[0] == '[' && middle != std::string_view::npos && end != std::string_view::npos) {
      text += "docs/";
      text += markdown.substr(middle + 2, end - middle - 2);
      markdown.remove_prefix(end + 1);
    } else {
      if (markdown[0] != '`') text += markdown[0];
      markdown.remove_prefix(1);
    }
  }
  return text;
}

std::string_view stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
}

}  // namespace

const std::vector<Trouble>& troubles() {
  static const std::vector<Trouble> table = read(kTroublesText);
  return table;
}

std::string explain(std::string_view words) {
  const std::string_view wanted = stripped(words);
  const std::string code = with_case(wanted, std::toupper);
  const auto of_code =
      std::find_if(troubles().begin(), troubles().end(), [&](const auto& t) { return t.code == code; });
  const Trouble* trouble = of_code != troubles().end() ? &*of_code : find_in(wanted);
  if (trouble == nullptr) trouble = find_loosely(wanted);
  if (trouble == nullptr)
    throw std::out_of_range(
        fmt::format("explain: nothing is known of '{:.200}'; give a code such as E201, or a part of an error's text{}",
                    wanted, nearest(wanted)));
  return fmt::format("{}  {}\n  the error says  {}\n  because         {}\n  do this         {}\n", trouble->code,
                     trouble->section, trouble->text, plain(trouble->because), plain(trouble->remedy));
}

}  // namespace sluice::info
