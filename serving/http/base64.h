#pragma once
#include <string>
#include <string_view>

namespace sluice::serving {

// The bytes that `text` stands for. Throws kInvalidArgument, naming `where`.
std::string from_base64(std::string_view text, const std::string& where);
std::string to_base64(std::string_view bytes);

}  // namespace sluice::serving
