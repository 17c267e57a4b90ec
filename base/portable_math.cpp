#include "base/portable_math.h"

#include <algorithm>
#include <iterator>

namespace sluice {
namespace {

// The # stands before an argument itself, so that the text is what the table has and not what macros make of it.
#define PORTABLE(NAME, PARAMETERS, ...) {#NAME, #PARAMETERS, #__VA_ARGS__, true},
constexpr ScalarFunction kPortable[] = {
#include "base/scalar/portable.inc"
};

#define MATH1(NAME) #NAME,
#define MATH2(NAME) #NAME,
constexpr const char* kMath[] = {
#include "base/scalar/math.inc"
};

}  // namespace

std::span<const char* const> math_functions() { return kMath; }

const ScalarFunction* find_portable_function(std::string_view name) {
  const auto it = std::find_if(std::begin(kPortable), std::end(kPortable),
                               [&](const ScalarFunction& function) { return name == function.name; });
  return it == std::end(kPortable) ? nullptr : &*it;
}

}  // namespace sluice
