#include "base/device.h"

#include <charconv>

#include "base/error.h"

namespace sluice {
namespace {

constexpr const char* kNames[] = {"cpu", "sim", "cuda"};

int parse_index(std::string_view digits, std::string_view whole) {
  int value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  SLUICE_CHECK(error == std::errc() && end == digits.data() + digits.size() && value >= 0,
               "device: bad index: '{}'; must be written kind:index with a non-negative index", whole);
  return value;
}

}  // namespace

const char* device_kind_name(DeviceKind kind) { return kNames[static_cast<int>(kind)]; }

std::string DeviceId::str() const {
  std::string s = fmt::format("{}:{}", device_kind_name(kind), index);
  return rank == 0 ? s : fmt::format("{}/{}", rank, s);
}

DeviceId parse_device(std::string_view text) {
  DeviceId id;
  std::string_view rest = text;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    id.rank = parse_index(rest.substr(0, slash), text);
    rest.remove_prefix(slash + 1);
  }
  std::string_view kind = rest.substr(0, rest.find(':'));
  if (kind.size() < rest.size()) id.index = parse_index(rest.substr(kind.size() + 1), text);
  for (int i = 0; i < 3; ++i) {
    if (kind == kNames[i]) {
      id.kind = static_cast<DeviceKind>(i);
      return id;
    }
  }
  fail(ErrorKind::kValue, "device: unknown kind: '{}'; must be cpu, sim or cuda, as in 'cpu' or 'sim:0'", text);
}

}  // namespace sluice
