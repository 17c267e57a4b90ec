#pragma once
// Words that only some clients know.
#include <string>
#include <string_view>

namespace sluice::serving {

// In a time that does not tell how much is equal.
bool same_secret(std::string_view a, std::string_view b);
// Whether what a client sent as `authorization` is "Bearer TOKEN". The scheme is of any case, as HTTP has it.
bool is_bearer(std::string_view authorization, const std::string& token);

}  // namespace sluice::serving
