#include "serving/core/json_string.h"

#include <fmt/format.h>

namespace sluice::serving {

namespace {

// Bytes of the character of UTF-8 that `text` begins with; 0 when it begins with none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t n = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  if (n == 3 && ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) >= 0xa0))) return 0;
  if (n == 4 && ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) >= 0x90))) return 0;
  return n;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    const char c = text[0];
    if (n == 0) {
      quoted += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      quoted += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return quoted + "\"";
}

std::string utf8_of(std::string text) {
  if (is_utf8(text)) return text;
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t n = character_bytes(rest);
    out += n == 0 ? std::string_view("\xef\xbf\xbd") : rest.substr(0, n);
    rest.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

}  // namespace sluice::serving
