#include "graph/calls/call_fix.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/ops/common.h"
#include "graph/ops/comparison.h"
#include "graph/ops/movement.h"

namespace sluice {

struct CallFixScope::State {
  std::vector<Fix> fixes;
  std::function<SourceLocation()> source;
};

namespace {

thread_local CallFixScope* innermost = nullptr;

const Attr* field(const Fix& fix, std::string_view name) {
  for (const auto& [key, value] : fix)
    if (key == name) return &value;
  return nullptr;
}
bool says(const Fix& fix, std::string_view name, const std::string& text) {
  const Attr* value = field(fix, name);
  return value && std::holds_alternative<std::string>(*value) && std::get<std::string>(*value) == text;
}

// The type after a change; nullopt when it does not fit.
std::optional<TensorType> changed(const TensorType& type, const std::string& change, const Attr& value) {
  TensorType to = type;
  if (change == "to_dtype") {
    to.dtype = std::get<DType>(value);
  } else if (change == "to_shape") {
    to.shape = Shape(std::get<Ints>(value));
    if (numel(to.shape) != numel(type.shape)) return std::nullopt;
  } else {
    const Ints& order = std::get<Ints>(value);
    if (static_cast<int>(order.size()) != type.shape.rank()) return std::nullopt;
    for (size_t i = 0; i < order.size(); ++i) to.shape[static_cast<int>(i)] = type.shape[static_cast<int>(order[i])];
  }
  return to == type ? std::nullopt : std::optional(to);
}

struct Change {
  std::string name;
  Attr value;
};

// The changes of an operand that are tried, smallest first: another dtype, two axes swapped, an axis added, channels
// moved, axes joined.
std::vector<Change> changes_of(const TensorType& type) {
  std::vector<Change> list;
  for (DType dtype : {DType::kInt64, DType::kFloat32, DType::kBool}) list.push_back({"to_dtype", dtype});
  const int rank = type.shape.rank();
  if (rank >= 2) {
    Ints order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[static_cast<size_t>(rank - 1)], order[static_cast<size_t>(rank - 2)]);
    list.push_back({"to_order", order});
  }
  for (int at = rank; at >= 0; --at) {
    Ints shape = type.shape.vec();
    shape.insert(shape.begin() + at, 1);
    list.push_back({"to_shape", shape});
  }
  if (rank >= 3) {
    Ints order = {0, rank - 1};
    for (int i = 1; i + 1 < rank; ++i) order.push_back(i);
    list.push_back({"to_order", order});
  }
  if (rank >= 2) {
    list.push_back({"to_shape", Ints{type.shape[0], type.shape[0] == 0 ? 0 : numel(type.shape) / type.shape[0]}});
    list.push_back({"to_shape", Ints{numel(type.shape)}});
  }
  return list;
}

std::vector<Attr> values_near(const Attr& value) {
  std::vector<Attr> list;
  if (const auto* flag = std::get_if<bool>(&value)) list.emplace_back(!*flag);
  if (std::holds_alternative<int64_t>(value))
    for (int64_t v : {-1, 0, 1, 2, 3, 4}) list.emplace_back(v);
  if (const auto* ints = std::get_if<Ints>(&value)) {
    for (size_t i = 0; i < ints->size(); ++i) {
      for (int64_t v : {-1, 0, 1, 2, 3, 4}) {
        Ints other = *ints;
        other[i] = v;
        list.emplace_back(other);
      }
    }
  }
  return list;
}

bool accepted(const OpDef& op, Types inputs, std::span<const bool> present, const Attrs& attrs) {
  try {
    return !infer_types(op, inputs, present, attrs).empty();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

CallFixScope::CallFixScope(std::vector<Fix> fixes, std::function<SourceLocation()> source)
    : state_(std::make_unique<State>(State{std::move(fixes), std::move(source)})),
      outer_(std::exchange(innermost, this)) {}

CallFixScope::~CallFixScope() { innermost = outer_; }

Fix find_call_fix(const OpDef& op, Types inputs, std::span<const bool> present, const Attrs& attrs) {
  for (size_t a = 0; a < attrs.size(); ++a) {
    if (!std::holds_alternative<bool>(attrs[a])) continue;
    Attrs other = attrs;
    other[a] = !std::get<bool>(attrs[a]);
    if (accepted(op, inputs, present, other)) return {{"attribute", op.params[a].name}, {"value", other[a]}};
  }
  std::vector<TensorType> types(inputs.begin(), inputs.end());
  for (size_t i = 0; i < types.size(); ++i) {
    if (!present[i]) continue;
    for (const Change& change : changes_of(inputs[i])) {
      const std::optional<TensorType> type = changed(inputs[i], change.name, change.value);
      if (!type) continue;
      types[i] = *type;
      if (accepted(op, types, present, attrs)) return {{"input", static_cast<int64_t>(i)}, {change.name, change.value}};
    }
    types[i] = inputs[i];
  }
  for (size_t a = 0; a < attrs.size(); ++a) {
    for (const Attr& value : values_near(attrs[a])) {
      Attrs other = attrs;
      other[a] = value;
      if (accepted(op, inputs, present, other)) return {{"attribute", op.params[a].name}, {"value", value}};
    }
  }
  return {};
}

bool CallFixes::active() { return innermost != nullptr; }

SourceLocation CallFixes::line() { return innermost ? innermost->state_->source() : SourceLocation(); }

void CallFixes::apply(const OpDef& op, std::vector<Value>& inputs, Attrs& attrs) {
  if (!innermost || innermost->state_->fixes.empty()) return;
  const std::string line = innermost->state_->source().str();
  for (const Fix& fix : innermost->state_->fixes) {
    if (!says(fix, "call", op.name) || !says(fix, "line", line)) continue;
    if (const Attr* name = field(fix, "attribute")) {
      const int a = op.find_param(std::get<std::string>(*name));
      if (a >= 0 && field(fix, "value")) attrs[static_cast<size_t>(a)] = *field(fix, "value");
    }
    const Attr* input = field(fix, "input");
    const size_t i = input ? static_cast<size_t>(std::get<int64_t>(*input)) : inputs.size();
    if (i >= inputs.size() || !inputs[i].defined()) continue;
    const CallFixScope none({}, innermost->state_->source);  // its own calls are not fixed again
    if (const Attr* dtype = field(fix, "to_dtype")) inputs[i] = ops::cast(inputs[i], std::get<DType>(*dtype));
    if (const Attr* shape = field(fix, "to_shape")) inputs[i] = ops::reshape(inputs[i], std::get<Ints>(*shape));
    if (const Attr* order = field(fix, "to_order")) inputs[i] = ops::permute(inputs[i], std::get<Ints>(*order));
  }
}

const std::string* CallFixes::placement(const SourceLocation& line, const char* name) {
  if (!innermost) return nullptr;
  for (const Fix& fix : innermost->state_->fixes) {
    const Attr* value = field(fix, name);
    if (value && says(fix, "line", line.str())) return std::get_if<std::string>(value);
  }
  return nullptr;
}

void CallFixes::rethrow(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, const Error& error) {
  Fix fix = fix_of(error);
  if (innermost && fix.empty()) {
    std::vector<TensorType> types;
    bool present[64] = {};
    for (size_t i = 0; i < inputs.size() && i < 64; ++i) {
      types.push_back(inputs[i].defined() ? inputs[i].type() : TensorType{});
      present[i] = inputs[i].defined();
    }
    if (types.size() == inputs.size()) fix = find_call_fix(op, types, {present, types.size()}, attrs);
    if (!fix.empty())
      fix.insert(fix.begin(), {{"call", std::string(op.name)}, {"line", innermost->state_->source().str()}});
  }
  if (fix.empty()) throw error;
  throw FixableError(error.kind(), error.what(), std::move(fix));
}

}  // namespace sluice
