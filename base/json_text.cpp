#include "base/json_text.h"

#include <fmt/format.h>

namespace sluice {

std::string quoted_json(std::string_view text) {
  std::string s = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': s += "\\\""; break;
      case '\\': s += "\\\\"; break;
      case '\n': s += "\\n"; break;
      case '\t': s += "\\t"; break;
      case '\r': s += "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          s += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          s += c;
        }
    }
  }
  return s + "\"";
}

}  // namespace sluice
