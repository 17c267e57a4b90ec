#include "compiler/lowering/places.h"

#include <charconv>

#include "base/fix.h"

namespace sluice::compiler {

using graph::Placement;
using plan::Space;
using plan::StreamKind;

namespace {

// Throws kValue for a placement that at() does not make.
std::pair<StreamKind, int> kind_and_index(const Placement& placement) {
  using enum StreamKind;
  for (const StreamKind kind : {kCompute, kHost, kCopyIn, kCopyOut, kCollective}) {
    const int index = placement.device ? stream_index(placement.stream, plan::stream_kind_name(kind)) : -1;
    if (index >= 0) return {kind, index};
  }
  fail(ErrorKind::kValue, "stream \"{}\" of device {}: no such stream; must be placed by the compiler",
       placement.stream, placement.device ? placement.device->str() : "none");
}

}  // namespace

int stream_index(std::string_view stream, std::string_view kind) {
  if (stream == kind) return 0;
  if (!stream.starts_with(kind) || !stream.substr(kind.size()).starts_with(":")) return -1;
  const std::string_view digits = stream.substr(kind.size() + 1);
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return error == std::errc() && end == digits.data() + digits.size() && index < 1024 ? index : -1;
}

Places::Places(const plan::Target& target, const CompileOptions& options)
    : options_(options), devices_(target.devices()) {}

const plan::DeviceDesc& Places::desc(const DeviceId& device) const {
  for (const plan::DeviceDesc& d : devices_)
    if (d.device == device) return d;
  std::string known;
  for (const plan::DeviceDesc& d : devices_) known += (known.empty() ? "" : ", ") + d.device.str();
  throw FixableError(ErrorKind::kValue, fmt::format("device {}: not there; the target has {}", device.str(), known),
                     {{"option", std::string("device")}, {"value", devices_.empty() ? "" : devices_[0].device.str()}});
}

Placement Places::at(const DeviceId& device, StreamKind kind, int index) {
  const std::string name = plan::stream_kind_name(kind);
  return {device, index == 0 ? name : fmt::format("{}:{}", name, index)};
}

plan::Stream Places::stream(const Placement& placement) {
  const auto [kind, index] = kind_and_index(placement);
  const DeviceId& device = *placement.device;
  return {fmt::format("{}/{}{}", device.str(), plan::stream_kind_name(kind), index), device, kind, index, 1};
}

StreamKind Places::stream_kind(const Placement& placement) { return kind_and_index(placement).first; }

Placement Places::usual(int rank) const {
  return at({rank, options_.device.kind, options_.device.index}, StreamKind::kCompute);
}

Space Places::computes(const DeviceId& device) const {
  return desc(device).host_memory ? host_memory(device.rank) : Space{plan::SpaceKind::kDevice, device};
}

Space Places::reads(const Placement& placement) const {
  const DeviceId& device = *placement.device;
  return stream_kind(placement) == StreamKind::kCopyIn ? host_memory(device.rank) : computes(device);
}

Space Places::writes(const Placement& placement) const {
  const DeviceId& device = *placement.device;
  return stream_kind(placement) == StreamKind::kCopyOut ? host_memory(device.rank) : computes(device);
}

Space Places::port_memory(const Placement& placement) const {
  const DeviceId& device = *placement.device;
  return device.kind == DeviceKind::kCpu ? host_memory(device.rank) : computes(device);
}

Placement Places::computing_in(const Space& space, const Placement& wanted) const {
  const int rank = space.device.rank;
  for (const Placement& candidate : {wanted, usual(rank)}) {
    const StreamKind kind = stream_kind(candidate);
    const bool computes_there = kind == StreamKind::kCompute || kind == StreamKind::kHost;
    if (computes_there && computes(*candidate.device) == space) return candidate;
  }
  return is_host(space) ? host(rank) : at(space.device, StreamKind::kCompute);
}

bool Places::moves_dense_bytes(const Placement& placement) const {
  const StreamKind kind = stream_kind(placement);
  return (kind == StreamKind::kCopyIn || kind == StreamKind::kCopyOut) && desc(*placement.device).dma;
}

}  // namespace sluice::compiler
