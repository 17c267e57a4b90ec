#include "graph/text_cursor.h"

#include <charconv>

namespace sluice::graph {
namespace {

bool is_word_char(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

void TextCursor::skip_space() {
  while (pos_ < line_.size() && (line_[pos_] == ' ' || line_[pos_] == '\t' || line_[pos_] == '\r')) ++pos_;
  if (pos_ < line_.size() && line_[pos_] == '#') pos_ = line_.size();  // a comment
}

std::string TextCursor::rest() const {
  const std::string_view left = line_.substr(pos_);
  return left.empty() ? "end of line" : fmt::format("'{}'{}", left.substr(0, 40), left.size() > 40 ? "..." : "");
}

bool TextCursor::accept(char c) {
  if (at_end() || line_[pos_] != c) return false;
  ++pos_;
  skip_space();
  return true;
}

void TextCursor::expect(char c, const char* context) {
  if (!accept(c)) fail("{}: found {}; must be '{}'", context, rest(), c);
}

std::string_view TextCursor::word() {
  const size_t start = pos_;
  if (!at_end() && !(peek() >= '0' && peek() <= '9')) {
    while (!at_end() && is_word_char(peek())) ++pos_;
  }
  const std::string_view text = line_.substr(start, pos_ - start);
  skip_space();
  return text;
}

std::string TextCursor::string(const char* what) {
  if (at_end() || peek() != '"') fail("{}: found {}; must be a string in double quotes", what, rest());
  const size_t start = pos_;
  std::string text;
  for (++pos_; !at_end() && line_[pos_] != '"'; ++pos_) {
    if (line_[pos_] != '\\') {
      text += line_[pos_];
      continue;
    }
    const char escaped = ++pos_ < line_.size() ? line_[pos_] : '\0';
    if (escaped == 'n')
      text += '\n';
    else if (escaped == '"' || escaped == '\\')
      text += escaped;
    else
      fail("{}: bad escape: '\\{}'; known are \\n \\\" \\\\", what, escaped ? std::string(1, escaped) : "");
  }
  if (at_end()) fail("{}: string not closed: {}; must end with '\"'", what, line_.substr(start, 40));
  ++pos_;
  skip_space();
  return text;
}

std::string_view TextCursor::number_text() {
  const size_t start = pos_;
  while (!at_end() && (is_word_char(peek()) || peek() == '.' || peek() == '-' || peek() == '+')) ++pos_;
  const std::string_view text = line_.substr(start, pos_ - start);
  skip_space();
  return text;
}

int64_t TextCursor::integer(const char* what) {
  const std::string found = rest();
  const std::string_view text = number_text();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    fail("{}: found {}; must be an integer of 64 bits", what, found);
  }
  return value;
}

void TextCursor::expect_end(const char* context) {
  if (!at_end()) fail("{}: extra text: {}; nothing may follow", context, rest());
}

}  // namespace sluice::graph
