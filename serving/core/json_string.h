#pragma once
#include <string>
#include <string_view>

namespace sluice::serving {

// "text" with its quotes, as JSON has it. Bytes that are no UTF-8 are replaced, so that the whole remains readable.
std::string json_string(std::string_view text);
// The text where it is UTF-8; otherwise with U+FFFD in the place of what is none.
std::string utf8_of(std::string text);
// Whether it is UTF-8, so that nothing of it is replaced.
bool is_utf8(std::string_view text);

}  // namespace sluice::serving
