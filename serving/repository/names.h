#pragma once
// Names that come from clients, configs and folders, and become parts of paths.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::serving {

// The name of a model: [A-Za-z0-9][A-Za-z0-9._-]{0,127}.
bool is_model_name(std::string_view name);
// Throws kInvalidArgument. `where`: "load".
void check_model_name(const std::string& where, const std::string& name);
// Checks the name of a file below a model's folder: at most 8 such names with '/' between. Throws kInvalidArgument.
void check_file_name(const std::string& where, const std::string& name);
// "3" of the folder "3"; nothing of other names, as "03" and "v3".
std::optional<int64_t> version_of(std::string_view name);
// For a message: without control characters, and not longer than 128.
std::string shown(std::string_view text);

}  // namespace sluice::serving
