#include "base/device.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace sluice {
namespace {

int parse_index(std::string_view digits, std::string_view whole) {
  int value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  SLUICE_CHECK(error == std::errc() && end == digits.data() + digits.size() && value >= 0,
               "device: bad index: '{}'; must be written kind:index with a non-negative index", whole);
  return value;
}

bool is_name(std::string_view text) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto further = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), further);
}

}  // namespace

DeviceKind DeviceKind::named(std::string_view name) {
  SLUICE_CHECK(
      is_name(name) && name.size() <= kMaxSize,
      "device: bad kind: '{}'; must be a name of at most {} of a-z, 0-9 and '_' that begins with a letter, as in "
      "'cpu' or 'sim:0'",
      name, kMaxSize);
  return DeviceKind(name);
}

std::string DeviceKind::str() const {
  std::string name;
  for (size_t i = 0; i < kMaxSize; ++i)
    if (const char c = static_cast<char>(words_[i / 8] >> (56 - i % 8 * 8)); c != 0) name += c;
  return name;
}

std::string DeviceId::str() const {
  std::string s = fmt::format("{}:{}", kind.str(), index);
  return rank == 0 ? s : fmt::format("{}/{}", rank, s);
}

DeviceId parse_device(std::string_view text) {
  DeviceId id;
  std::string_view rest = text;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    id.rank = parse_index(rest.substr(0, slash), text);
    rest.remove_prefix(slash + 1);
  }
  const std::string_view kind = rest.substr(0, rest.find(':'));
  if (kind.size() < rest.size()) id.index = parse_index(rest.substr(kind.size() + 1), text);
  id.kind = DeviceKind::named(kind);
  return id;
}

}  // namespace sluice
