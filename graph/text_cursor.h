#pragma once
// Reads one line of a text form, token by token, with errors that name file and line.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sluice::graph {

class TextCursor {
 public:
  TextCursor(std::string_view line, std::string where) : line_(line), where_(std::move(where)) { skip_space(); }

  bool at_end() const { return pos_ == line_.size(); }
  char peek() const { return at_end() ? '\0' : line_[pos_]; }
  bool accept(char c);
  void expect(char c, const char* context);
  // A name [A-Za-z_][A-Za-z0-9_]*, or "" when there is none.
  std::string_view word();
  std::string string(const char* what);  // a quoted string with its escapes undone
  int64_t integer(const char* what);
  // The characters of a number, as written.
  std::string_view number_text();
  void expect_end(const char* context);

  // The rest of the text, shortened, for messages.
  std::string rest() const;
  const std::string& where() const { return where_; }  // "file:line"
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kValue, where_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void skip_space();

  std::string_view line_;
  std::string where_;
  size_t pos_ = 0;
};

}  // namespace sluice::graph
