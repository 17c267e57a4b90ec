#include "serving/http/base64.h"

#include <array>
#include <cstdint>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::array<int8_t, 256> values() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kLetters.size(); ++i) values[static_cast<uint8_t>(kLetters[i])] = static_cast<int8_t>(i);
  return values;
}

}  // namespace

std::string from_base64(std::string_view text, const std::string& where) {
  static const std::array<int8_t, 256> kValues = values();
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.size() % 4 == 1) wrong(where + " is no base64");
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = kValues[static_cast<uint8_t>(c)];
    if (value < 0) wrong(where + " is no base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 255);
  }
  return out;
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : uint32_t{0});
    for (size_t i = 0; i < 4; ++i) out += at + i > bytes.size() ? '=' : kLetters[bits >> (18 - 6 * i) & 63];
  }
  return out;
}

}  // namespace sluice::serving
