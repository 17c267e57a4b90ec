#pragma once
// Which build of Sluice this is.
#include <string>

namespace sluice {

// The GNU build id of the program or library that this code is linked into, in hexadecimal: another one for other code.
// "" where its linker has written none.
std::string build_id();

}  // namespace sluice
