#include "streams/devices.h"

#include "base/log.h"
#include "streams/backend.h"
#include "streams/cores.h"
#include "streams/cpu/cpu_device.h"
#include "streams/sim/sim_device.h"

namespace sluice {
namespace {

std::unique_ptr<Device> make_known(const DeviceId& id, const DeviceOptions& options) {
  if (id.kind == DeviceKind::kCpu) return std::make_unique<CpuDevice>(id, options);
  if (id.kind == DeviceKind::kSim) return std::make_unique<SimDevice>(id, options);
  return backend_of(id.kind)->make_device(id, options);
}

}  // namespace

std::unique_ptr<Device> make_device(const DeviceId& id, const DeviceOptions& options) {
  DeviceOptions known = options;
  if (known.cores == 0) known.cores = machine_cores();
  SLUICE_CHECK(known.cores > 0, "device: {}: {} cores; must be positive", id.str(), known.cores);
  log(LogLevel::kDebug, LogArea::kStreams, "device {}: opened for {} cores", id.str(), known.cores);
  try {
    return make_known(id, known);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    fail(ErrorKind::kUnsupported, "device: {}: {}", id.str(), error.what());
  }
}

}  // namespace sluice
