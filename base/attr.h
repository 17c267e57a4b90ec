#pragma once
// Attribute values of ops: what is fixed at compile time, as opposed to tensors.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"

namespace sluice {

using Ints = std::vector<int64_t>;

// Absent (Python's None). Its copy constructor is there for libstdc++ 12, which takes a variant of trivial types,
// strings and vectors to be never empty, and so destroys what a copy that ran out of memory has not made.
struct NoAttr {
  NoAttr() = default;
  NoAttr(const NoAttr&) noexcept {}
  NoAttr& operator=(const NoAttr&) noexcept { return *this; }
  bool operator==(const NoAttr&) const { return true; }
};

using Attr = std::variant<NoAttr, bool, int64_t, double, std::string, Ints, DType>;

std::string attr_str(const Attr& attr);  // text form: true, 3, 0.5, "x", [1, 2], float32, none

// The values of an op's params, in the order of OpDef::params.
using Attrs = std::vector<Attr>;
// The same with names: how a plan, which knows no OpDef, keeps them.
using NamedAttrs = std::vector<std::pair<std::string, Attr>>;

// Reads a named attribute; throws kType when it has another type, kValue when it is missing.
template <class T>
const T& get_attr(const NamedAttrs& attrs, const char* name);

}  // namespace sluice
