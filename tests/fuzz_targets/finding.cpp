#include <cstdio>
#include <cstdlib>

#include "fuzz_targets/targets.h"

namespace sluice::fuzz {

void finding(std::string_view what, std::string_view detail) {
  std::fprintf(stderr, "finding: %.*s\n%.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

}  // namespace sluice::fuzz
