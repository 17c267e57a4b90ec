#include "serving/http/json_words.h"

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <limits>
#include <optional>

namespace sluice::serving {

namespace {

namespace json = boost::json;
using boost::system::error_code;

// Makes values of what the parser meets. A word is told to the parser as "null", and to the handler by `word`.
struct Values {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  Values(const json::storage_ptr& scratch, unsigned char* first, size_t bytes) : stack(scratch, first, bytes) {}

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) { return true; }
  bool on_object_end(std::size_t n, error_code&) { return stack.push_object(n), true; }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t n, error_code&) { return stack.push_array(n), true; }
  bool on_key_part(json::string_view part, std::size_t, error_code&) { return stack.push_chars(part), true; }
  bool on_key(json::string_view part, std::size_t, error_code&) { return stack.push_key(part), true; }
  bool on_string_part(json::string_view part, std::size_t, error_code&) { return stack.push_chars(part), true; }
  bool on_string(json::string_view part, std::size_t, error_code&) { return stack.push_string(part), true; }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(std::int64_t value, json::string_view, error_code&) { return stack.push_int64(value), true; }
  bool on_uint64(std::uint64_t value, json::string_view, error_code&) { return stack.push_uint64(value), true; }
  bool on_double(double value, json::string_view, error_code& error) {
    if (!std::isfinite(value)) error = json::error::exponent_overflow;
    return !error && (stack.push_double(value), true);
  }
  bool on_bool(bool value, error_code&) { return stack.push_bool(value), true; }
  bool on_null(error_code&) {
    word ? stack.push_double(*word) : stack.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

  json::value_stack stack;
  std::optional<double> word;
};

struct Word {
  size_t begin = 0, size = 0;
  double value = 0;
};

// The next word from `at` on that stands in no string.
std::optional<Word> next_word(std::string_view text, size_t at) {
  static constexpr std::array<std::pair<std::string_view, double>, 3> kWords = {
      {{"NaN", std::numeric_limits<double>::quiet_NaN()},
       {"Infinity", std::numeric_limits<double>::infinity()},
       {"Inf", std::numeric_limits<double>::infinity()}}};
  for (at = text.find_first_of("\"NI", at); at < text.size(); at = text.find_first_of("\"NI", at + 1)) {
    if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
      continue;
    }
    for (const auto& [name, value] : kWords) {
      if (!text.substr(at).starts_with(name)) continue;
      const bool negative = at > 0 && text[at - 1] == '-';
      return negative ? Word{at - 1, name.size() + 1, -value} : Word{at, name.size(), value};
    }
  }
  return std::nullopt;
}

bool may_have_words(std::string_view text) {
  return text.find("NaN") != std::string_view::npos || text.find("Inf") != std::string_view::npos;
}

}  // namespace

json::value parse_with_words(std::string_view text, const json::storage_ptr& values, const json::storage_ptr& scratch,
                             size_t max_depth, error_code& error) {
  json::parse_options options;
  options.max_depth = max_depth;
  std::array<unsigned char, 4096> first;  // is enough for most
  json::basic_parser<Values> parser(options, scratch, first.data(), first.size());
  Values& made = parser.handler();
  made.stack.reset(values);
  size_t at = 0;
  std::optional<Word> word = may_have_words(text) ? next_word(text, 0) : std::nullopt;
  for (; word && !error; word = next_word(text, at)) {
    parser.write_some(true, text.data() + at, word->begin - at, error);
    if (error) return nullptr;
    made.word = word->value;
    const std::string_view null = "null";
    const size_t read = parser.write_some(true, null.data(), null.size(), error);
    if (!error && read != null.size()) error = json::error::extra_data;
    made.word.reset();
    at = word->begin + word->size;
  }
  if (error) return nullptr;
  const size_t read = parser.write_some(false, text.data() + at, text.size() - at, error);
  if (!error && read != text.size() - at) error = json::error::extra_data;
  if (error) return nullptr;
  return made.stack.release();
}

}  // namespace sluice::serving
