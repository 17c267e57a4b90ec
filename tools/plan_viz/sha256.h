#pragma once
// SHA-256 (FIPS 180-4), so that a plan has the name `sha256sum plan.json` gives it.
#include <string>
#include <string_view>

namespace sluice::plan_viz {

std::string sha256_hex(std::string_view data);

}  // namespace sluice::plan_viz
