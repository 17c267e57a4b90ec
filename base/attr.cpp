#include "base/attr.h"

#include <cmath>
#include <iterator>

#include "base/error.h"

namespace sluice {
namespace {

template <class List, class One>
std::string joined(const List& list, const char* separator, One one) {
  std::string s;
  bool first = true;
  for (const auto& item : list) {
    s += (first ? "" : separator) + one(item);
    first = false;
  }
  return s;
}

std::string value_str(int id) { return id == kNoOperand ? "none" : fmt::format("%{}", id); }

std::string spec_str(const TensorSpec& spec) {
  const std::string type = TensorType{spec.dtype, spec.shape}.str();
  return spec.strides == contiguous_strides(spec.shape) ? type : type + " strides " + spec.strides.str();
}

struct Printer {
  std::string operator()(NoAttr) const { return "none"; }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const {
    std::string s = fmt::format("{}", v);  // shortest form that reads back equal
    const bool plain_integer = std::isfinite(v) && s.find_first_of(".e") == std::string::npos;
    return plain_integer ? s + ".0" : s;
  }
  std::string operator()(const std::string& v) const {
    std::string s = "\"";
    for (char c : v) {
      if (c == '"' || c == '\\') s += '\\';
      if (c == '\n') {
        s += "\\n";
        continue;
      }
      s += c;
    }
    return s + "\"";
  }
  std::string operator()(DType v) const { return dtype_name(v); }
  std::string operator()(const TensorType& v) const { return v.str(); }
  template <class T>
  std::string operator()(const std::vector<T>& v) const {
    return "[" + joined(v, ", ", [this](const T& item) { return (*this)(item); }) + "]";
  }
  std::string operator()(const AttrGraph& v) const {
    int64_t next = v.inputs;
    const auto call = [this, &next](const AttrCall& c) {
      std::string s;
      for (int i = 0; i < c.num_results(); ++i) s += fmt::format("{}%{}", i == 0 ? "" : ", ", next++);
      s += fmt::format(" = {}({})", c.op, joined(c.operands, ", ", value_str));
      const auto attr = [](const auto& named) { return named.first + " = " + attr_str(named.second); };
      if (!c.attrs.empty()) s += " {" + joined(c.attrs, ", ", attr) + "}";
      if (!c.results.empty()) s += " : " + joined(c.results, ", ", spec_str);
      return s + "; ";
    };
    return fmt::format("graph({}) {{{}output {}}}", v.inputs, joined(v.calls, "", call),
                       joined(v.outputs, ", ", value_str));
  }
};

template <class T>
constexpr bool kList = false;
template <class T>
constexpr bool kList<std::vector<T>> = true;

}  // namespace

std::string attr_str(const Attr& attr) { return std::visit(Printer{}, attr); }

const char* attr_kind(const Attr& attr) {
  static constexpr const char* kNames[] = {"none",          "bool",  "int",          "float",         "str",
                                           "list of int",   "dtype", "list of bool", "list of float", "list of str",
                                           "list of dtype", "type",  "list of type", "graph"};
  static_assert(std::size(kNames) == std::variant_size_v<Attr>);
  return kNames[attr.index()];
}

bool is_list(const Attr& attr) {
  return std::visit([]<class T>(const T&) { return kList<T>; }, attr);
}

void check_attr_graph(const AttrGraph& graph, size_t inputs, size_t outputs, bool typed) {
  SLUICE_CHECK(graph.inputs >= 0 && static_cast<size_t>(graph.inputs) == inputs,
               "graph: inputs: {}; it is called with {}", graph.inputs, inputs);
  SLUICE_CHECK(graph.outputs.size() == outputs, "graph: outputs: {}; must be {}", graph.outputs.size(), outputs);
  SLUICE_CHECK(typed || !graph.calls.empty(), "graph: calls: none; must have some");
  int given = graph.inputs;
  const auto check = [&given](const std::string& who, int value) {
    SLUICE_CHECK(value >= 0 && value < given,
                 "graph: {} uses %{}; must be an input or what a call before it gives, below %{}", who, value, given);
  };
  for (const AttrCall& call : graph.calls) {
    SLUICE_CHECK(!call.op.empty() && (typed || !call.operands.empty()),
                 "graph: %{} = {}(); must be an op of some operands", given, call.op);
    SLUICE_CHECK(typed != call.results.empty(), "graph: %{} = {}: types of results: {}; must be {}", given, call.op,
                 call.results.size(), typed ? "said" : "none");
    for (const int operand : call.operands)
      if (!typed || operand != kNoOperand) check(fmt::format("%{} = {}", given, call.op), operand);
    given += call.num_results();
  }
  for (const int output : graph.outputs) check("output", output);
}

template <class T>
const T& get_attr(const NamedAttrs& attrs, const char* name) {
  for (const auto& [key, value] : attrs) {
    if (key != name) continue;
    if (const T* v = std::get_if<T>(&value)) return *v;
    fail(ErrorKind::kType, "attribute '{}': wrong type: {}; see the op's documentation", name, attr_str(value));
  }
  fail(ErrorKind::kValue, "attribute '{}': missing; every attribute of the op must be given", name);
}

template const bool& get_attr<bool>(const NamedAttrs&, const char*);
template const int64_t& get_attr<int64_t>(const NamedAttrs&, const char*);
template const double& get_attr<double>(const NamedAttrs&, const char*);
template const std::string& get_attr<std::string>(const NamedAttrs&, const char*);
template const Ints& get_attr<Ints>(const NamedAttrs&, const char*);
template const DType& get_attr<DType>(const NamedAttrs&, const char*);
template const Bools& get_attr<Bools>(const NamedAttrs&, const char*);
template const Doubles& get_attr<Doubles>(const NamedAttrs&, const char*);
template const Strings& get_attr<Strings>(const NamedAttrs&, const char*);
template const DTypes& get_attr<DTypes>(const NamedAttrs&, const char*);
template const TensorType& get_attr<TensorType>(const NamedAttrs&, const char*);
template const TensorTypes& get_attr<TensorTypes>(const NamedAttrs&, const char*);
template const AttrGraph& get_attr<AttrGraph>(const NamedAttrs&, const char*);

}  // namespace sluice
