#pragma once
// Explains errors and what to do, from the table that Python's sluice.info has too
// (python/sluice/troubles.txt).
#include <string>
#include <string_view>
#include <vector>

namespace sluice::info {

// An error: its code, the section of docs/troubleshooting.md it is in, a part of its text, why it comes, what to do.
struct Trouble {
  std::string code, section, text, because, remedy;
};

// All of them, in the order of their codes.
const std::vector<Trouble>& troubles();

// Explains `words`, a code or the text of an error, and what to do, as lines for people. Throws std::out_of_range with
// the nearest texts when nothing is known of it.
std::string explain(std::string_view words);

}  // namespace sluice::info
