#pragma once
// Attribute values of ops: what is fixed at compile time, as opposed to tensors.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/tensor_spec.h"

namespace sluice {

using Ints = std::vector<int64_t>;
using Bools = std::vector<bool>;
using Doubles = std::vector<double>;
using Strings = std::vector<std::string>;
using DTypes = std::vector<DType>;
using TensorTypes = std::vector<TensorType>;

// Absent (Python's None). Its copy constructor is there for libstdc++ 12, which takes a variant of trivial types,
// strings and vectors to be never empty, and so destroys what a copy that ran out of memory has not made.
struct NoAttr {
  NoAttr() = default;
  NoAttr(const NoAttr&) noexcept {}
  NoAttr& operator=(const NoAttr&) noexcept { return *this; }
  bool operator==(const NoAttr&) const { return true; }
};

// A nested graph: calls of ops one after the other. Its values have numbers: the inputs come first, then what each call
// gives. Either all calls say the types of what they give, or none does and each gives one value.
struct AttrCall;
struct AttrGraph {
  int inputs = 0;
  std::vector<AttrCall> calls;
  std::vector<int> outputs;
  bool operator==(const AttrGraph& other) const;
};

using Attr = std::variant<NoAttr, bool, int64_t, double, std::string, Ints, DType, Bools, Doubles, Strings, DTypes,
                          TensorType, TensorTypes, AttrGraph>;

// The values of an op's params, in the order of OpDef::params.
using Attrs = std::vector<Attr>;
// The same with names: how a plan, which knows no OpDef, keeps them.
using NamedAttrs = std::vector<std::pair<std::string, Attr>>;

inline constexpr int kNoOperand = -1;  // an absent optional one, where types are said

struct AttrCall {
  std::string op;
  NamedAttrs attrs = {};
  std::vector<int> operands;
  std::vector<TensorSpec> results = {};
  int num_results() const { return results.empty() ? 1 : static_cast<int>(results.size()); }
  bool operator==(const AttrCall&) const = default;
};
inline bool AttrGraph::operator==(const AttrGraph& other) const {
  return inputs == other.inputs && calls == other.calls && outputs == other.outputs;
}

// Text form: true, 3, 0.5, "x", float32, none; a list of one of these, [1, 2]; a type and a list of types,
// [float32(4, 3), int64(8,)]; a graph, graph(2) {%2 = mul(%0, %1); %3 = gelu(%2) {approximate = "tanh"}; output %3}, or
// with types, graph(1) {%1, %2 = f(%0, none) : float32(3,), int64(2, 2) strides (1, 2); output %2}.
std::string attr_str(const Attr& attr);
const char* attr_kind(const Attr& attr);  // "int", "list of str", ..., for messages

bool is_list(const Attr& attr);

inline constexpr int kMostNested = 16;  // graphs within graphs that readers follow

// Throws kValue unless the graph takes `inputs` and gives `outputs`, uses each value after it is given, and says the
// types of all (`typed`) or of none, and then has a call.
void check_attr_graph(const AttrGraph& graph, size_t inputs, size_t outputs, bool typed = false);

// Reads a named attribute; throws kType when it has another type, kValue when it is missing.
template <class T>
const T& get_attr(const NamedAttrs& attrs, const char* name);

}  // namespace sluice
