#include "base/device_mesh.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace sluice {
namespace {

constexpr int kMostDevices = 4096;
constexpr const char* kSbpKinds[] = {"split", "broadcast", "partial_sum"};  // in the order of Sbp::Kind

}  // namespace

DeviceMesh::DeviceMesh(std::vector<DeviceId> devices) : devices_(std::move(devices)) {
  SLUICE_CHECK(!devices_.empty(), "placement: no device; must name at least one");
  std::set<DeviceId> seen;
  for (const DeviceId& device : devices_) {
    SLUICE_CHECK(seen.insert(device).second, "placement: device given twice: {}; each may appear once", device.str());
    SLUICE_CHECK(device.kind == devices_[0].kind, "placement: kinds differ: {} and {}; all devices must be of one kind",
                 devices_[0].str(), device.str());
  }
}

std::string DeviceMesh::str() const {
  std::string text;
  for (size_t i = 0; i < devices_.size();) {
    size_t last = i;
    while (last + 1 < devices_.size() && devices_[last + 1].rank == devices_[i].rank &&
           devices_[last + 1].index == devices_[last].index + 1)
      ++last;
    text += (i ? "," : "") + devices_[i].str();
    if (last > i) text += fmt::format("-{}", devices_[last].index);
    i = last + 1;
  }
  return text;
}

NamedAttrs placement_attrs(const GlobalPlacement& placement) {
  Strings devices;
  for (const DeviceId& device : placement.mesh.devices()) devices.push_back(device.str());
  return {{"mesh", devices},
          {"sbp", std::string(kSbpKinds[static_cast<size_t>(placement.sbp.kind)])},
          {"axis", int64_t{placement.sbp.axis}}};
}

GlobalPlacement placement_of(const Strings& mesh, const std::string& sbp, int64_t axis) {
  std::vector<DeviceId> devices;
  for (const std::string& device : mesh) devices.push_back(parse_device(device));
  const auto kind = std::find(std::begin(kSbpKinds), std::end(kSbpKinds), sbp);
  SLUICE_CHECK(kind != std::end(kSbpKinds), "sbp: unknown: '{}'; must be split, broadcast or partial_sum", sbp);
  SLUICE_CHECK(axis >= 0 && axis < kMaxRank, "axis: out of range: {}; must be in [0, {})", axis, kMaxRank);
  const Sbp lies{static_cast<Sbp::Kind>(kind - std::begin(kSbpKinds)), static_cast<int>(axis)};
  SLUICE_CHECK(axis == 0 || lies.kind == Sbp::Kind::kSplit, "axis: {} of {}; must be 0 but for split", axis, sbp);
  return {DeviceMesh(std::move(devices)), lies};
}

DeviceMesh parse_mesh(std::string_view text) {
  std::vector<DeviceId> devices;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t dash = item.rfind('-');
    const bool run = dash != std::string_view::npos && dash > 0 && item[dash - 1] != ':';
    DeviceId device = parse_device(item.substr(0, run ? dash : item.size()));
    int last = device.index;
    if (run) {
      const char *from = item.data() + dash + 1, *to = item.data() + item.size();
      const auto [stop, error] = std::from_chars(from, to, last);
      SLUICE_CHECK(error == std::errc() && stop == to && last >= device.index && last - device.index < kMostDevices,
                   "placement: bad run of devices: '{}'; must be like sim:0-3, at most {} devices", item, kMostDevices);
    }
    for (; device.index <= last; ++device.index) devices.push_back(device);
    SLUICE_CHECK(static_cast<int>(devices.size()) <= kMostDevices,
                 "placement: {} devices or more; at most {} are allowed", devices.size(), kMostDevices);
  }
  return DeviceMesh(std::move(devices));
}

std::pair<int64_t, int64_t> part_of(int64_t size, int n, int i) {
  const int64_t each = size / n, larger = size % n;
  const int64_t start = each * i + std::min<int64_t>(i, larger);
  return {start, start + each + (i < larger)};
}

}  // namespace sluice
