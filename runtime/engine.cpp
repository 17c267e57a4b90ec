#include "runtime/engine.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <tuple>

#include "actors/stream_executor.h"
#include "actors/system.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel.h"
#include "kernels/sim/sim_kernels.h"
#include "memory/core_lease.h"
#include "runtime/session_core.h"
#include "streams/cores.h"
#include "streams/devices.h"
#include "streams/stream.h"

namespace sluice {

struct Engine::Impl {
  explicit Impl(EngineOptions o) : options(o), leases(o.cores > 0 ? o.cores : machine_cores()), random(o.seed) {
    add_cpu_kernels(kernels);
    add_sim_kernels(kernels);
  }

  EngineOptions options;
  CoreLeases leases;
  KernelTable kernels;
  std::recursive_mutex mutex;  // of the maps below; making an executor makes its device
  std::map<DeviceId, std::shared_ptr<Device>> devices;
  std::map<std::pair<plan::SpaceKind, DeviceId>, std::shared_ptr<Allocator>> allocators;
  std::shared_ptr<Allocator> caching;
  using StreamKey = std::tuple<DeviceId, plan::StreamKind, int>;
  std::map<StreamKey, std::unique_ptr<actors::StreamExecutor>> executors;
  std::unique_ptr<actors::System> system;
  std::vector<std::weak_ptr<SessionCore>> sessions;
  std::mutex stepping;
  std::mt19937_64 random;
};

Engine::Engine(EngineOptions options) : impl_(std::make_unique<Impl>(options)) {
  SLUICE_CHECK(options.cores >= 0, "engine: cores: {}; must be positive, or 0 for all", options.cores);
}

Engine::~Engine() {
  std::vector<std::weak_ptr<SessionCore>> sessions;
  {
    std::lock_guard lock(impl_->mutex);
    sessions.swap(impl_->sessions);
  }
  for (const std::weak_ptr<SessionCore>& session : sessions) {
    if (const std::shared_ptr<SessionCore> core = session.lock()) core->close();
  }
  impl_->system.reset();
  impl_->executors.clear();
}

const EngineOptions& Engine::options() const { return impl_->options; }
int Engine::cores() const { return impl_->leases.cores(); }
KernelTable& Engine::kernels() { return impl_->kernels; }
CoreLeases& Engine::leases() { return impl_->leases; }

Device& Engine::device(const DeviceId& id) {
  std::lock_guard lock(impl_->mutex);
  std::shared_ptr<Device>& device = impl_->devices[id];
  if (device == nullptr) {
    DeviceOptions options;
    options.cores = cores();
    options.acquire_cores = [leases = &impl_->leases](int n) { leases->acquire(n); };
    options.release_cores = [leases = &impl_->leases](int n) { leases->release(n); };
    device = make_device(id, options);
  }
  return *device;
}

std::shared_ptr<Allocator> Engine::allocator(const plan::Space& space) {
  const bool on_device = space.kind == plan::SpaceKind::kDevice;
  std::lock_guard lock(impl_->mutex);
  std::shared_ptr<Allocator>& allocator = impl_->allocators[{space.kind, on_device ? space.device : DeviceId{}}];
  if (allocator != nullptr) return allocator;
  if (!on_device) return allocator = make_host_allocator();
  Device& device = this->device(space.device);
  std::shared_ptr<Allocator> made = make_device_allocator(device, space);
  // Whoever holds the allocator, or a storage of it, holds the device.
  allocator = {made.get(), [made, device = impl_->devices[space.device]](Allocator*) mutable {
                 made.reset();
                 device.reset();
               }};
  return allocator;
}

std::shared_ptr<Allocator> Engine::caching_allocator() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->caching == nullptr) impl_->caching = make_caching_allocator(make_host_allocator());
  return impl_->caching;
}

AllocatorStats Engine::allocator_stats(const plan::Space& space) { return allocator(space)->stats(); }
void Engine::reset_allocator_peak(const plan::Space& space) { allocator(space)->reset_peak(); }

bool Engine::step() {
  SLUICE_CHECK_KIND(kRuntime, impl_->options.manual_stepping,
                    "engine: step() without manual stepping; set EngineOptions::manual_stepping");
  std::lock_guard stepping(impl_->stepping);
  std::vector<std::pair<actors::StreamExecutor*, size_t>> ready;
  size_t total = 0;
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& [key, executor] : impl_->executors) {
      const size_t pending = executor->pending();
      if (pending == 0) continue;
      ready.push_back({executor.get(), pending});
      total += pending;
    }
  }
  if (total == 0) return false;
  size_t choice = impl_->random() % total;
  for (const auto& [executor, pending] : ready) {
    if (choice < pending) {
      executor->step(impl_->random);
      return true;
    }
    choice -= pending;
  }
  return true;
}

actors::StreamExecutor& Engine::executor(const plan::Stream& stream) {
  std::lock_guard lock(impl_->mutex);
  auto& executor = impl_->executors[{stream.device, stream.kind, stream.index}];
  if (executor == nullptr) {
    Device& device = this->device(stream.device);
    actors::StreamExecutor::Options options;
    options.name = fmt::format("{}/{}{}", stream.device.str(), plan::stream_kind_name(stream.kind), stream.index);
    options.leases = &impl_->leases;
    options.device = &device;
    options.manual = impl_->options.manual_stepping;
    executor = std::make_unique<actors::StreamExecutor>(options, device.create_stream(stream.kind, stream.index));
  }
  return *executor;
}

bool Engine::on_stream_thread() const {
  std::lock_guard lock(impl_->mutex);
  return std::any_of(impl_->executors.begin(), impl_->executors.end(),
                     [](const auto& entry) { return entry.second->on_thread(); });
}

actors::System& Engine::actor_system() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->system == nullptr) {
    const auto watchdog = impl_->options.manual_stepping ? std::chrono::milliseconds(0) : impl_->options.watchdog;
    impl_->system = std::make_unique<actors::System>(watchdog);
  }
  return *impl_->system;
}

void Engine::adopt(std::shared_ptr<SessionCore> core) {
  std::lock_guard lock(impl_->mutex);
  std::erase_if(impl_->sessions, [](const auto& session) { return session.expired(); });
  impl_->sessions.push_back(core);
}

}  // namespace sluice
