#pragma once
// Finds the line of the user's program that is running: Python frames outside the sluice package.
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::python {

// The innermost user frame; takes the GIL. Empty when there is none.
SourceLocation user_location();
// Up to `depth` user frames, innermost first, as "file:line in function".
std::vector<std::string> user_stack(int depth);

}  // namespace sluice::python
