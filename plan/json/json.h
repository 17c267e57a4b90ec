#pragma once
// The JSON form of a plan: a file people read and diff. Equal plans give equal bytes; indices are positions.
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "plan/plan.h"

namespace boost::json {
class value;
}

namespace sluice::plan {

// One entity per line, keys in a fixed order.
std::string to_json(const Plan& plan);

// Reads to_json()'s form; unknown and missing keys are errors. Throws kValue
// "<file>: <field>: <what>: <got>; <what must hold>". Only the form is checked: verify() checks what the plan means.
Plan from_json(std::string_view text, const std::string& file_name);

inline constexpr size_t kMostJsonDepth = 128;  // enough for a kernel's attribute of kMostNested graphs

// Throws kValue when an object has one key twice, which readers of JSON take differently. REQUIRES: `json` is well
// formed.
void refuse_repeated_keys(std::string_view json, const std::string& file_name);

// The whole of a file's text, a `what`. Throws kValue when it is not one JSON document, or has a key twice.
boost::json::value read_document(std::string_view text, const std::string& file_name, const char* what);

// Reads a plan file, or `plan.json` of a bundle directory. Throws kIo when it cannot be read.
Plan load_plan(const std::string& path);

// One attribute, as in a kernel: true, 3, {"double": "0.5"}, "x", [1, 2], null, {"dtype": "float32"}; what has no form
// of its own in JSON says its kind by such a key. Doubles are strings so that they come back bit for bit.
std::string attr_json(const Attr& attr);
using sluice::quoted_json;

}  // namespace sluice::plan
