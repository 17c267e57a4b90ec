#pragma once
// How files of this folder are read: fields by their keys, errors with the path to the field. A piece of the
// `json_*.cpp`, which include <boost/json.hpp> before it.
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/tensor_spec.h"
#include "plan/plan.h"

namespace sluice::plan {

namespace js = boost::json;

// The place in the document that is being read: a chain on the stack, spelled out only in errors.
struct Path {
  const Path* parent = nullptr;
  std::string_view key;
  int64_t position = -1;
  std::string str() const {
    const std::string up = parent ? parent->str() : "";
    if (position >= 0) return fmt::format("{}[{}]", up, position);
    return up.empty() ? std::string(key) : up + "." + std::string(key);
  }
};

inline std::string shown(const js::value& v) {
  std::string s = js::serialize(v);
  return s.size() > 40 ? s.substr(0, 37) + "..." : s;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  [[noreturn]] void wrong(const Path& path, const std::string& what) const {
    fail(ErrorKind::kValue, "{}: {}: {}", file_, path.str(), what);
  }
  [[noreturn]] void wrong_type(const Path& path, const js::value& v, const char* need) const {
    wrong(path, fmt::format("wrong type: {}; must be {}", shown(v), need));
  }

  const js::object& object(const js::value& v, const Path& path) const {
    if (!v.is_object()) wrong_type(path, v, "an object");
    return v.get_object();
  }
  const js::array& array(const js::value& v, const Path& path) const {
    if (!v.is_array()) wrong_type(path, v, "a list");
    return v.get_array();
  }
  std::string string(const js::value& v, const Path& path) const {
    if (!v.is_string()) wrong_type(path, v, "a string");
    return std::string(v.get_string());
  }
  int64_t integer(const js::value& v, const Path& path, int64_t low, int64_t high) const {
    if (v.is_uint64()) wrong(path, fmt::format("out of range: {}; must be in {} to {}", shown(v), low, high));
    if (!v.is_int64()) wrong_type(path, v, "a whole number");
    const int64_t n = v.get_int64();
    if (n < low || n > high) wrong(path, fmt::format("out of range: {}; must be in {} to {}", n, low, high));
    return n;
  }
  uint64_t bytes(const js::value& v, const Path& path) const {
    if (v.is_uint64()) return v.get_uint64();
    return static_cast<uint64_t>(integer(v, path, 0, std::numeric_limits<int64_t>::max()));
  }
  double number(const js::value& v, const Path& path) const {
    if (v.is_int64()) return static_cast<double>(v.get_int64());
    if (!v.is_string()) wrong_type(path, v, "a whole number or a number in quotes");
    const js::string& s = v.get_string();
    double n = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
    if (error != std::errc() || end != s.data() + s.size()) wrong_type(path, v, "a number");
    return n;
  }
  // The errors of the parsers in base, with the field's path.
  template <class Parse>
  auto parsed(const js::value& v, const Path& path, Parse parse) const {
    const std::string text = string(v, path);
    try {
      return parse(text);
    } catch (const Error& e) {
      wrong(path, e.what());
    }
  }

 private:
  const std::string& file_;
};

// An object whose every key must be asked for: leftovers are unknown keys.
class Fields {
 public:
  Fields(const Reader& reader, const js::value& v, const Path& path)
      : reader_(reader), object_(reader.object(v, path)), path_(path) {}
  Fields(const Reader& reader, const js::value& v, Path&& path) = delete;  // it is read later
  void done() const {
    if (read_.size() == object_.size()) return;
    for (const auto& entry : object_) {
      const std::string_view key(entry.key().data(), entry.key().size());
      bool known = false;
      for (const char* r : read_) known |= key == r;
      if (!known) reader_.wrong(path(std::string(key).c_str()), "unknown field; this build does not know it");
    }
    reader_.wrong(path_, "a field appears twice; each must appear once");
  }
  Path path(const char* key) const { return {path_.key.empty() && path_.position < 0 ? nullptr : &path_, key, -1}; }
  const js::value& at(const char* key) {
    const js::value* v = object_.if_contains(key);
    if (!v) reader_.wrong(path(key), "missing; every field must be given");
    read_.push_back(key);
    return *v;
  }
  bool has(const char* key) const { return object_.if_contains(key) != nullptr; }
  int integer(const char* key, int64_t low = 0) {
    return static_cast<int>(reader_.integer(at(key), path(key), low, std::numeric_limits<int>::max()));
  }
  uint64_t bytes(const char* key) { return reader_.bytes(at(key), path(key)); }
  double number(const char* key) { return reader_.number(at(key), path(key)); }
  std::string string(const char* key) { return reader_.string(at(key), path(key)); }
  bool boolean(const char* key) {
    const js::value& v = at(key);
    if (!v.is_bool()) reader_.wrong_type(path(key), v, "true or false");
    return v.get_bool();
  }
  DeviceId device(const char* key) {
    return reader_.parsed(at(key), path(key), [](const std::string& s) { return parse_device(s); });
  }
  DType dtype(const char* key) {
    return reader_.parsed(at(key), path(key), [](const std::string& s) { return parse_dtype(s); });
  }
  // One of an enum's names, given by its name function.
  template <class Enum>
  Enum name(const char* key, const char* (*name_of)(Enum), int count) {
    const std::string text = string(key);
    std::string known;
    for (int i = 0; i < count; ++i) {
      if (text == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
      known += (i ? ", " : "") + std::string(name_of(static_cast<Enum>(i)));
    }
    reader_.wrong(path(key), fmt::format("unknown name: '{}'; must be one of {}", text, known));
  }
  // A list, each element read by `one(value, path)`.
  template <class T, class One>
  std::vector<T> list(const char* key, One one) {
    const Path here = path(key);
    const js::array& values = reader_.array(at(key), here);
    std::vector<T> result;
    result.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      result.push_back(one(values[i], Path{&here, {}, static_cast<int64_t>(i)}));
    }
    return result;
  }
  std::vector<int> ints(const char* key, int64_t low = 0) {
    return list<int>(key, [this, low](const js::value& v, const Path& p) {
      return static_cast<int>(reader_.integer(v, p, low, std::numeric_limits<int>::max()));
    });
  }
  Shape shape(const char* key, int64_t low) {
    const std::vector<int64_t> dims = list<int64_t>(key, [&](const js::value& v, const Path& p) {
      return reader_.integer(v, p, low, std::numeric_limits<int64_t>::max());
    });
    if (dims.size() > kMaxRank) {
      reader_.wrong(path(key), fmt::format("too long: {} dims; at most {}", dims.size(), kMaxRank));
    }
    return Shape(dims);
  }
  TensorSpec spec() {
    return {dtype("dtype"), shape("shape", 0), shape("strides", std::numeric_limits<int64_t>::min())};
  }
  // The errors of a function in base, with a field's path.
  template <class F>
  void checked(const char* key, F f) const {
    try {
      f();
    } catch (const Error& e) {
      reader_.wrong(path(key), e.what());
    }
  }
  const Reader& reader() const { return reader_; }

 private:
  const Reader& reader_;
  const js::object& object_;
  const Path& path_;
  std::vector<const char*> read_;
};

// The whole text as one document. `what` it is, for messages. Throws kValue for what is not well formed.
js::value read_document(std::string_view text, const std::string& file_name, const char* what);

}  // namespace sluice::plan
