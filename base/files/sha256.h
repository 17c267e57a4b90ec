#pragma once
// SHA-256 (FIPS 180-4): what `sha256sum` prints of a file with these bytes.
#include <string>
#include <string_view>

namespace sluice {

std::string sha256_hex(std::string_view data);

}  // namespace sluice
