#pragma once
// Files of fuzzed content, in a directory that goes with the process; in memory where the system has that.
#include <string>
#include <string_view>

namespace sluice::fuzz {

// The directory, made on first use.
const std::string& scratch();
// Puts `content` into a file of it and returns its path.
std::string scratch_file(const std::string& name, std::string_view content);

}  // namespace sluice::fuzz
