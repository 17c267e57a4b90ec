// A text as one JSON document, and keys that appear twice: Boost.JSON keeps the last one, other readers the first.
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <set>
#include <string>
#include <vector>

#include "plan/json/json.h"
#include "plan/json/json_fields-inl.h"

namespace sluice::plan {
namespace {

// Collects the keys of every object that is open; stops at the first it has seen before.
struct Keys {
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);
  using Code = js::error_code;

  std::vector<std::set<std::string>> open;
  std::string key;

  bool on_object_begin(Code&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(size_t, Code&) {
    open.pop_back();
    return true;
  }
  bool on_key_part(js::string_view part, size_t, Code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(js::string_view part, size_t, Code& error) {
    key.append(part.data(), part.size());
    if (!open.back().insert(key).second) {
      error = js::error::extra_data;  // any: only `key` is read
      return false;
    }
    key.clear();
    return true;
  }
  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(size_t, Code&) { return true; }
  bool on_string_part(js::string_view, size_t, Code&) { return true; }
  bool on_string(js::string_view, size_t, Code&) { return true; }
  bool on_number_part(js::string_view, Code&) { return true; }
  bool on_int64(int64_t, js::string_view, Code&) { return true; }
  bool on_uint64(uint64_t, js::string_view, Code&) { return true; }
  bool on_double(double, js::string_view, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(js::string_view, Code&) { return true; }
  bool on_comment(js::string_view, Code&) { return true; }
};

}  // namespace

void refuse_repeated_keys(std::string_view json, const std::string& file_name) {
  js::parse_options options;
  options.max_depth = kMostJsonDepth;
  js::basic_parser<Keys> parser{options};
  js::error_code error;
  const size_t read_to = parser.write_some(false, json.data(), json.size(), error);
  const std::string& key = parser.handler().key;
  SLUICE_CHECK(!error, "{}: {}: appears twice in one object, again at byte {}; each field must appear once", file_name,
               quoted_json(key), read_to);
}

js::value read_document(std::string_view text, const std::string& file_name, const char* what) {
  js::error_code error;
  js::parse_options options;
  options.max_depth = kMostJsonDepth;
  js::stream_parser parser({}, options);
  const size_t read_to = parser.write_some(text.data(), text.size(), error);
  if (!error && !parser.done()) parser.finish(error);
  if (error) {
    fail(ErrorKind::kValue, "{}: not a complete JSON document: {} at byte {} of {}; the file is truncated or damaged",
         file_name, error.message(), read_to, text.size());
  }
  SLUICE_CHECK(text.find_first_not_of(" \t\r\n", read_to) == std::string_view::npos,
               "{}: text after the document: at byte {}; a {} is one JSON object", file_name, read_to, what);
  refuse_repeated_keys(text, file_name);
  return parser.release();
}

}  // namespace sluice::plan
