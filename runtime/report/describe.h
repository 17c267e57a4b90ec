#pragma once
// Describes what this process runs on and with: the thing to paste into a bug report. No user names, host names or
// paths.
#include <string>
#include <vector>

#include "base/libraries.h"

namespace sluice {

// Text in sections, or one JSON object of sections. `more`: what the caller adds to the libraries (Python, NumPy).
std::string describe(bool json = false, const std::vector<LibraryVersion>& more = {});

// The value of an environment variable as describe() shows it: "(set)" for what may be private.
std::string shown_value(const std::string& value);

}  // namespace sluice
