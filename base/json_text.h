#pragma once
// Functions that every writer of JSON needs.
#include <string>
#include <string_view>

namespace sluice {

// `text` as a JSON string, with its quotes.
std::string quoted_json(std::string_view text);

}  // namespace sluice
