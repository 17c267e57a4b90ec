#include "base/device_mesh.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace sluice {
namespace {

constexpr int kMostDevices = 4096;
constexpr const char* kSbpKinds[] = {"split", "broadcast", "partial_sum"};  // in the order of Sbp::Kind

bool is_axis_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto fits = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), fits);
}

std::string axes_str(const std::vector<DeviceMesh::Axis>& axes) {
  std::string text = "(";
  for (const DeviceMesh::Axis& axis : axes) {
    if (text.size() > 1) text += ", ";
    text += (axis.name.empty() ? "" : axis.name + "=") + std::to_string(axis.size);
  }
  return text + ")";
}

// Reads what axes_str() prints.
std::vector<DeviceMesh::Axis> parse_axes(std::string_view text) {
  const auto bad = [&] {
    fail(ErrorKind::kValue, "placement: bad axes: '{}'; must be like (2, 2) or (dp=2, tp=2)", text);
  };
  if (text.size() < 3 || text.front() != '(' || text.back() != ')') bad();
  std::vector<DeviceMesh::Axis> axes;
  const std::string_view inner = text.substr(1, text.size() - 2);
  for (size_t begin = 0; begin <= inner.size();) {
    const size_t end = std::min(inner.find(',', begin), inner.size());
    std::string_view item = inner.substr(begin, end - begin);
    if (item.starts_with(' ')) item.remove_prefix(1);
    begin = end + 1;
    DeviceMesh::Axis axis;
    if (const size_t equals = item.find('='); equals != std::string_view::npos) {
      axis.name = item.substr(0, equals);
      if (axis.name.empty()) bad();
      item.remove_prefix(equals + 1);
    }
    const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), axis.size);
    if (error != std::errc() || stop != item.data() + item.size()) bad();
    axes.push_back(std::move(axis));
  }
  return axes;
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<DeviceId> devices) : devices_(std::move(devices)) {
  SLUICE_CHECK(!devices_.empty(), "placement: no device; must name at least one");
  std::set<DeviceId> seen;
  for (const DeviceId& device : devices_) {
    SLUICE_CHECK(seen.insert(device).second, "placement: device given twice: {}; each may appear once", device.str());
    SLUICE_CHECK(device.kind == devices_[0].kind, "placement: kinds differ: {} and {}; all devices must be of one kind",
                 devices_[0].str(), device.str());
  }
  axes_ = {{size(), {}}};
}

DeviceMesh::DeviceMesh(std::vector<DeviceId> devices, std::vector<Axis> axes) : DeviceMesh(std::move(devices)) {
  SLUICE_CHECK(!axes.empty() && axes.size() <= kMaxRank, "placement: {} axes; must have 1 to {}", axes.size(),
               kMaxRank);
  int64_t product = 1;
  std::set<std::string> seen;
  for (const Axis& axis : axes) {
    SLUICE_CHECK(axis.size >= 1 && axis.size <= kMostDevices, "placement: an axis of size {}; must be 1 to {}",
                 axis.size, kMostDevices);
    product = std::min<int64_t>(product * axis.size, kMostDevices + 1);
    if (axis.name.empty()) continue;
    SLUICE_CHECK(
        is_axis_name(axis.name),
        "placement: an axis is called '{}'; a name must be of letters, digits and '_', and begin with no digit",
        axis.name);
    SLUICE_CHECK(seen.insert(axis.name).second, "placement: two axes are called '{}'; names must differ", axis.name);
  }
  axes_ = std::move(axes);
  SLUICE_CHECK(product == size(), "placement: axes {} of {} devices; their sizes must multiply to {}", axes_str(axes_),
               size(), size());
}

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  return devices_ == other.devices_ && shape_of(*this) == shape_of(other);
}

MeshShape shape_of(const DeviceMesh& mesh) {
  MeshShape shape;
  for (const DeviceMesh::Axis& axis : mesh.axes()) shape.push_back(axis.size);
  return shape;
}

MeshShape coordinates(const MeshShape& shape, int i) {
  MeshShape at(shape.size());
  for (size_t k = shape.size(); k-- > 0; i /= shape[k]) at[k] = i % shape[k];
  return at;
}

GlobalPlacement parse_placement(std::string_view text) {
  const size_t on = text.find(" on ");
  SLUICE_CHECK(on != std::string_view::npos, "placement: '{}'; must be like 'S(0),B on sim:0-3 (2, 2)'", text);
  GlobalPlacement placement{parse_mesh(text.substr(on + 4)), parse_nd_sbp(text.substr(0, on))};
  SLUICE_CHECK(placement.sbp.axes().size() == placement.mesh.axes().size(),
               "placement: '{}': {} for {} axes; must be one for each", text, placement.sbp.size(),
               placement.mesh.axes().size());
  return placement;
}

Spans spans_of(const Shape& shape, const MeshShape& mesh, const NdSbp& sbp, int i) {
  SLUICE_CHECK(sbp.axes().size() == mesh.size(), "sbp: {} of a placement of {} axes; must be one for each", sbp.str(),
               mesh.size());
  const MeshShape at = coordinates(mesh, i);
  Spans spans;
  for (const int64_t size : shape) spans.emplace_back(0, size);
  for (int k = 0; k < sbp.size(); ++k) {
    if (sbp[k].kind != Sbp::Kind::kSplit || mesh[static_cast<size_t>(k)] == 1) continue;
    SLUICE_CHECK(sbp[k].axis < shape.rank(), "sbp: {} of a tensor of rank {}; the axis must be below the rank",
                 sbp[k].str(), shape.rank());
    auto& [start, stop] = spans[static_cast<size_t>(sbp[k].axis)];
    const auto [first, last] = part_of(stop - start, mesh[static_cast<size_t>(k)], at[static_cast<size_t>(k)]);
    SLUICE_CHECK(first < last,
                 "sbp: {} of {}: a device would get nothing; each must get at least one element of an axis", sbp.str(),
                 shape.str());
    stop = start + last;
    start += first;
  }
  return spans;
}

void check_layout(const Shape& shape, const DeviceMesh& mesh, const NdSbp& sbp, const std::string& what) {
  SLUICE_CHECK(sbp.axes().size() == mesh.axes().size(),
               "sbp: {} on {}: {} for {}; must be one for each axis of the placement", sbp.str(), mesh.str(),
               sbp.size(), mesh.axes().size());
  std::vector<int> parts(kMaxRank, 1);
  for (int k = 0; k < sbp.size(); ++k) {
    if (sbp[k].kind != Sbp::Kind::kSplit) continue;
    const int axis = sbp[k].axis;
    SLUICE_CHECK(axis < shape.rank(), "sbp: {} of a tensor of rank {}: {}; the axis must be below the rank", sbp.str(),
                 shape.rank(), what);
    const int n = parts[static_cast<size_t>(axis)] *= mesh.axes()[static_cast<size_t>(k)].size;
    const std::string over = mesh.is_row() ? fmt::format("{} devices", mesh.size()) : mesh.str();
    SLUICE_CHECK(shape[axis] >= n,
                 "sbp: {} of {} over {}: axis {} has {} elements{}; each device must get at least one", sbp.str(), what,
                 over, axis, shape[axis], mesh.is_row() ? "" : fmt::format(" for {} parts", n));
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
  const bool plain = is_row() && (axes_.empty() || axes_[0].name.empty());
  return plain ? text : text + " " + axes_str(axes_);
}

NamedAttrs placement_attrs(const GlobalPlacement& placement) {
  if (!placement.mesh.is_row())
    return {{"mesh", Strings{placement.mesh.str()}}, {"sbp", placement.sbp.str()}, {"axis", int64_t{0}}};
  Strings devices;
  for (const DeviceId& device : placement.mesh.devices()) devices.push_back(device.str());
  const Sbp& sbp = placement.sbp[0];
  return {
      {"mesh", devices}, {"sbp", std::string(kSbpKinds[static_cast<size_t>(sbp.kind)])}, {"axis", int64_t{sbp.axis}}};
}

GlobalPlacement placement_of(const Strings& mesh, const std::string& sbp, int64_t axis) {
  if (mesh.size() == 1 && mesh[0].ends_with(')')) {
    SLUICE_CHECK(axis == 0, "axis: {} of {}; must be 0 on a placement of several axes", axis, sbp);
    return {parse_mesh(mesh[0]), parse_nd_sbp(sbp)};
  }
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
  std::vector<DeviceMesh::Axis> axes;
  if (const size_t open = text.find(" ("); open != std::string_view::npos) {
    axes = parse_axes(text.substr(open + 1));
    text = text.substr(0, open);
  }
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
  return axes.empty() ? DeviceMesh(std::move(devices)) : DeviceMesh(std::move(devices), std::move(axes));
}

std::pair<int64_t, int64_t> part_of(int64_t size, int n, int i) {
  const int64_t each = size / n, larger = size % n;
  const int64_t start = each * i + std::min<int64_t>(i, larger);
  return {start, start + each + (i < larger)};
}

}  // namespace sluice
