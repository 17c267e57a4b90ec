#pragma once
#include <string>
#include <string_view>

namespace sluice::serving {

// "text" with its quotes, as JSON has it. What is no UTF-8 is replaced, so that the whole remains readable.
std::string json_string(std::string_view text);

}  // namespace sluice::serving
