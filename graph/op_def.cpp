#include "graph/op_def.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

// Edit distance, for suggestions.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

Attr empty_like(const Attr& list) {
  return std::visit([]<class T>(const T&) -> Attr { return T{}; }, list);
}

Attr coerce(const OpDef& op, const Param& param, Attr given) {
  if (std::holds_alternative<NoAttr>(given)) {
    if (param.nullable) return given;
    SLUICE_CHECK_KIND(kType, !param.required, "{}: parameter '{}': missing; it has no default", op.name, param.name);
    return param.default_value;
  }
  const Attr& wanted = param.default_value;
  if (std::holds_alternative<NoAttr>(wanted) || wanted.index() == given.index()) return given;
  if (const int64_t* i = std::get_if<int64_t>(&given)) {
    if (std::holds_alternative<double>(wanted)) return static_cast<double>(*i);
    if (std::holds_alternative<Ints>(wanted)) return Ints{*i};
  }
  if (const Ints* list = std::get_if<Ints>(&given)) {
    if (std::holds_alternative<Doubles>(wanted)) return Doubles(list->begin(), list->end());
    if (list->empty() && is_list(wanted)) return empty_like(wanted);  // [] is of every kind
  }
  fail(ErrorKind::kType, "{}: parameter '{}': wrong type: {} ({}); must be {}{}", op.name, param.name, attr_str(given),
       attr_kind(given), attr_kind(wanted), param.nullable ? " or none" : "");
}

}  // namespace

int OpDef::find_param(std::string_view param) const {
  for (size_t i = 0; i < params.size(); ++i) {
    if (param == params[i].name) return static_cast<int>(i);
  }
  return -1;
}

bool OpDef::variadic() const { return inputs.size() == 1 && std::strchr(inputs[0], '*') != nullptr; }

int OpDef::min_inputs() const {
  if (variadic()) return effectful ? 0 : 1;  // without effect and inputs it would be a constant
  return static_cast<int>(
      std::count_if(inputs.begin(), inputs.end(), [](const char* name) { return !std::strchr(name, '?'); }));
}

Attrs validate_attrs(const OpDef& op, Attrs attrs) {
  SLUICE_CHECK_KIND(kType, attrs.size() <= op.params.size(), "{}: too many parameters: {}; it has {}", op.name,
                    attrs.size(), op.params.size());
  for (size_t i = 0; i < attrs.size(); ++i) attrs[i] = coerce(op, op.params[i], std::move(attrs[i]));
  for (size_t i = attrs.size(); i < op.params.size(); ++i) {
    const Param& param = op.params[i];
    SLUICE_CHECK_KIND(kType, !param.required, "{}: parameter '{}': missing; it has no default", op.name, param.name);
    attrs.push_back(param.default_value);
  }
  return attrs;
}

NamedAttrs name_attrs(const OpDef& op, const Attrs& attrs) {
  NamedAttrs named;
  named.reserve(attrs.size());
  for (size_t i = 0; i < attrs.size(); ++i) named.emplace_back(op.params[i].name, attrs[i]);
  return named;
}

Attrs order_attrs(const OpDef& op, const NamedAttrs& named) {
  Attrs attrs;
  std::vector<bool> given(op.params.size(), false);
  for (const Param& param : op.params) attrs.push_back(param.default_value);
  for (const auto& [name, value] : named) {
    const int i = op.find_param(name);
    SLUICE_CHECK_KIND(kType, i >= 0, "{}: unknown parameter: '{}'; see the op's documentation", op.name, name);
    SLUICE_CHECK_KIND(kType, !given[i], "{}: parameter '{}': given twice; once is enough", op.name, name);
    given[i] = true;
    attrs[i] = value;
  }
  for (size_t i = 0; i < attrs.size(); ++i) {
    const Param& param = op.params[i];
    SLUICE_CHECK_KIND(kType, given[i] || !param.required, "{}: parameter '{}': missing; it has no default", op.name,
                      param.name);
  }
  return validate_attrs(op, std::move(attrs));
}

void check_input_count(const OpDef& op, size_t count) {
  if (count == op.inputs.size() && !op.variadic()) [[likely]]
    return;
  const size_t least = static_cast<size_t>(op.min_inputs());
  SLUICE_CHECK_KIND(kType, count >= least, "{}: too few inputs: {}; it takes {}{}", op.name, count,
                    op.variadic() || least < op.inputs.size() ? "at least " : "", least);
  SLUICE_CHECK_KIND(kType, op.variadic() || count <= op.inputs.size(), "{}: too many inputs: {}; it takes {}{}",
                    op.name, count, least < op.inputs.size() ? "at most " : "", op.inputs.size());
}

Error prefixed(const OpDef& op, const Error& error) {
  const std::string_view text = error.what(), name = op.name;
  const bool already = text.substr(0, name.size()) == name && text.substr(name.size(), 1) == ":";
  return already ? error : Error(error.kind(), fmt::format("{}: {}", name, text));
}

std::vector<TensorType> infer_types(const OpDef& op, Types inputs, std::span<const bool> present, const Attrs& attrs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool optional = !op.variadic() && std::strchr(op.inputs[i], '?');
    SLUICE_CHECK_KIND(kType, present[i] || optional, "{}: input '{}': absent; it is not optional", op.name,
                      op.inputs[op.variadic() ? 0 : i]);
  }
  try {
    std::vector<TensorType> types = op.infer(inputs, present, attrs);
    SLUICE_CHECK_KIND(kRuntime, op.num_outputs < 0 || static_cast<int>(types.size()) == op.num_outputs,
                      "{}: infer gave {} outputs; its definition says {}", op.name, types.size(), op.num_outputs);
    return types;
  } catch (const Error& error) {
    throw prefixed(op, error);
  } catch (const std::bad_variant_access&) {  // of a nullable param, whose default does not say its type
    std::string given;
    for (const Attr& attr : attrs) given += (given.empty() ? "" : ", ") + attr_str(attr);
    fail(ErrorKind::kType, "{}: a parameter has the wrong type: ({}); see the op's documentation", op.name, given);
  }
}

double operand_bytes(Types inputs, Types outputs) {
  double bytes = 0;
  for (Types types : {inputs, outputs}) {
    for (const TensorType& t : types)
      bytes += static_cast<double>(numel(t.shape)) * static_cast<double>(dtype_size(t.dtype));
  }
  return bytes;
}

Cost cost_of(const OpDef& op, Types inputs, Types outputs, const Attrs& attrs) {
  if (op.cost) return op.cost(inputs, outputs, attrs);
  double elements = 0;
  for (const TensorType& t : outputs) elements += static_cast<double>(numel(t.shape));
  return {elements, operand_bytes(inputs, outputs)};
}

OpRegistry::OpRegistry(const OpRegistry& other) {
  const std::lock_guard lock(other.mutex_);
  owned_ = other.owned_;
  by_name_ = other.by_name_;
  ordered_ = other.ordered_;
}

void OpRegistry::add(const OpDef* op) {
  const std::lock_guard lock(mutex_);
  SLUICE_CHECK(by_name_.emplace(op->name, op).second, "ops: '{}' is registered twice; names must be unique", op->name);
  ordered_.push_back(op);
}

void OpRegistry::add(std::shared_ptr<const OpDef> op) {
  add(op.get());
  const std::lock_guard lock(mutex_);
  owned_.push_back(std::move(op));
}

std::vector<const OpDef*> OpRegistry::all() const {
  const std::lock_guard lock(mutex_);
  return ordered_;
}

const OpDef* OpRegistry::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

const OpDef& OpRegistry::get(std::string_view name) const {
  if (const OpDef* op = find(name)) return *op;
  std::vector<std::pair<size_t, const char*>> near;
  const std::vector<const OpDef*> known = all();
  for (const OpDef* op : known) {
    const size_t d = distance(name, op->name);
    if (d <= std::max<size_t>(2, name.size() / 3)) near.emplace_back(d, op->name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string names;
  for (size_t i = 0; i < near.size() && i < 3; ++i) names += fmt::format("{}'{}'", i ? ", " : "", near[i].second);
  fail(ErrorKind::kUnsupported, "ops: unknown op: '{}'; {}", name,
       names.empty() ? fmt::format("there are {} ops and none has a similar name", known.size())
                     : fmt::format("did you mean {}?", names));
}

}  // namespace sluice
