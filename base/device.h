#pragma once
// Names of devices: (rank, kind, index).
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

enum class DeviceKind : uint8_t { kCpu, kSim, kCuda };
const char* device_kind_name(DeviceKind kind);  // "cpu"

struct DeviceId {
  int rank = 0;
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  std::string str() const;  // "cpu:0"; "1/cuda:0" for rank 1
  auto operator<=>(const DeviceId&) const = default;
};

// Parses "cpu", "sim:1", "2/cuda:0". Throws kValue that names the known kinds.
DeviceId parse_device(std::string_view text);

}  // namespace sluice
