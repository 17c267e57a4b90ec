#pragma once
// C's mathematics as data: which functions expressions of base/scalar may call, and those of float that have the same
// bits on every machine.
#include <span>
#include <string_view>

#include "base/scalar_ops.h"

namespace sluice {

std::span<const char* const> math_functions();  // base/scalar/math.inc
// One of them for float, or a part of it (base/scalar/portable.inc). Null: it has no such form.
const ScalarFunction* find_portable_function(std::string_view name);

}  // namespace sluice
