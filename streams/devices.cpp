#include "streams/devices.h"

#include "base/log.h"
#include "streams/cores.h"
#include "streams/cpu/cpu_device.h"
#include "streams/sim/sim_device.h"

namespace sluice {

std::unique_ptr<Device> make_device(const DeviceId& id, const DeviceOptions& options) {
  DeviceOptions known = options;
  if (known.cores == 0) known.cores = machine_cores();
  SLUICE_CHECK(known.cores > 0, "device: {}: {} cores; must be positive", id.str(), known.cores);
  log(LogLevel::kDebug, LogArea::kStreams, "device {}: opened for {} cores", id.str(), known.cores);
  switch (id.kind) {
    case DeviceKind::kCpu: return std::make_unique<CpuDevice>(id, known);
    case DeviceKind::kSim: return std::make_unique<SimDevice>(id, known);
    case DeviceKind::kCuda: break;
  }
  fail(ErrorKind::kUnsupported, "device: {}: this build has no {} backend; use cpu or sim", id.str(),
       id.kind == DeviceKind::kCuda ? "CUDA" : device_kind_name(id.kind));
}

}  // namespace sluice
