#include "base/attr.h"

#include <cmath>

#include "base/error.h"

namespace sluice {
namespace {

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
  std::string operator()(const Ints& v) const {
    std::string s = "[";
    for (size_t i = 0; i < v.size(); ++i) s += fmt::format("{}{}", i ? ", " : "", v[i]);
    return s + "]";
  }
  std::string operator()(DType v) const { return dtype_name(v); }
};

}  // namespace

std::string attr_str(const Attr& attr) { return std::visit(Printer{}, attr); }

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

}  // namespace sluice
