#include "serving/repository/names.h"

#include <algorithm>
#include <charconv>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

constexpr size_t kLongest = 128;
constexpr int kMostParts = 8;

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

}  // namespace

bool is_model_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongest && is_alphanumeric(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

void check_model_name(const std::string& where, const std::string& name) {
  if (!is_model_name(name))
    throw Error(Code::kInvalidArgument,
                where + ": model name '" + shown(name) +
                    "'; it must be of 1 to 128 letters, digits, '.', '_' and '-', and begin with a letter or digit");
}

void check_file_name(const std::string& where, const std::string& name) {
  std::string_view rest = name;
  for (int depth = 0; depth < kMostParts; ++depth) {
    const size_t slash = rest.find('/');
    if (!is_model_name(rest.substr(0, slash))) break;
    if (slash == std::string_view::npos) return;
    rest.remove_prefix(slash + 1);
  }
  throw Error(Code::kInvalidArgument,
              where + ": file name '" + shown(name) +
                  "'; it must be of at most 8 parts with '/' between, each of 1 to 128 letters, digits, '.', '_' and "
                  "'-', beginning with a letter or digit");
}

std::optional<int64_t> version_of(std::string_view name) {
  int64_t version = 0;
  if (name.empty() || name.size() > 18 || (name.size() > 1 && name.front() == '0')) return std::nullopt;
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  std::from_chars(name.data(), name.data() + name.size(), version);
  return version;
}

std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return text.size() > kLongest ? out + "..." : out;
}

}  // namespace sluice::serving
