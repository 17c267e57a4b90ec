#include "runtime/session/engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <tuple>

#include "actors/message_log.h"
#include "actors/stream_executor.h"
#include "actors/system.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel_cache.h"
#include "kernels/sim/sim_kernels.h"
#include "kernels/trials.h"
#include "memory/core_lease.h"
#include "memory/counted_bytes.h"
#include "runtime/extension.h"
#include "runtime/session/deadlines.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/session_core.h"
#include "streams/backend.h"
#include "streams/cores.h"
#include "streams/devices.h"
#include "streams/stream.h"

namespace sluice {

static int cores_of(const EngineOptions& options) {
  if (options.cores > 0) return options.cores;
  const int all = machine_cores();
  return options.cpus.empty() ? all : std::min(all, static_cast<int>(options.cpus.size()));
}

// On one core, who looks for something keeps whoever brings it from doing so.
static bool may_spin(const EngineOptions& options) {
  return options.spin != Spin::kNever && options.cpus.size() != 1 && machine_cores() > 1;
}

struct Engine::Impl {
  explicit Impl(EngineOptions o)
      : options(o), leases(cores_of(o)), spins(may_spin(o)), workers(o.spin), random(o.seed) {
    add_cpu_kernels(kernels);
    add_sim_kernels(kernels);
  }

  bool forked() const { return forks != fork_count(); }

  const uint64_t forks = fork_count();
  EngineOptions options;
  CoreLeases leases;
  const bool spins;
  WorkerThreads workers;
  KernelTable kernels;
  std::vector<std::shared_ptr<const LoadedExtension>> extensions;
  std::recursive_mutex mutex;  // of the maps below; making an executor makes its device
  std::map<DeviceId, std::shared_ptr<Device>> devices;
  KernelCache kernel_cache{kernels};  // gone before the devices
  KernelTrials kernel_trials{kernels, leases, [this](const DeviceId& id) -> Device& { return device(id); }, 8192,
                             caches_are_on() ? cache_directory("kernels") : std::string()};
  std::set<const Backend*> backends;  // whose kernels are in the table
  std::map<std::pair<plan::SpaceKind, DeviceId>, std::shared_ptr<Allocator>> allocators;
  std::map<DeviceId, std::shared_ptr<CountedBytes>> device_bytes;
  std::shared_ptr<Allocator> caching;
  std::mutex shared_mutex;
  std::multimap<std::string, std::weak_ptr<Storage>> shared;  // memory that sessions only read
  PackedWeights packed_weights;
  Deadlines deadlines;
  using StreamKey = std::tuple<DeviceId, plan::StreamKind, int>;
  std::unique_ptr<actors::MessageLog> message_log;
  std::map<StreamKey, std::vector<std::shared_ptr<actors::StreamExecutor>>> executors;
  std::unique_ptr<actors::System> system;
  std::vector<std::weak_ptr<SessionCore>> sessions;
  std::vector<std::shared_ptr<SessionCore>> abandoned;
  struct Lanes {
    std::mutex mutex;
    std::set<int> held;
  };
  const std::shared_ptr<Lanes> lanes = std::make_shared<Lanes>();
  bool ending = false, cores_taken = false;
  std::mutex stepping;
  std::mt19937_64 random;
  std::vector<std::pair<actors::StreamExecutor*, size_t>> ready;  // of step()

  bool on_stream_thread() const {
    const actors::StreamExecutor* current = actors::StreamExecutor::current();
    return current != nullptr && current->leases() == &leases;
  }
  // Ends all sessions within `timeout`, abandons those that do not. From now on nothing can be loaded.
  void end_sessions(std::chrono::milliseconds timeout) noexcept;
  void shutdown(std::chrono::milliseconds timeout) noexcept;
  // Lets go of abandoned sessions whose actors have ended. Returns how many have not.
  size_t reap();
  std::shared_ptr<actors::StreamExecutor> choose_executor(const plan::Stream& stream, Device& device);
  Device& device(const DeviceId& id);
  bool step_recorded();
};

// Made on first use, with the kernels of its backend.
Device& Engine::Impl::device(const DeviceId& id) {
  std::lock_guard lock(mutex);
  std::shared_ptr<Device>& device = devices[id];
  if (device == nullptr) {
    DeviceOptions made;
    made.cores = leases.cores();
    made.acquire_cores = [this](int n) { leases.acquire(n); };
    made.release_cores = [this](int n) { leases.release(n); };
    std::shared_ptr<Device> fresh = make_device(id, made);
    const Backend* backend = backend_of(id.kind);
    if (backend != nullptr && !backends.contains(backend)) {
      backend->add_kernels(kernels);
      backends.insert(backend);
    }
    device = std::move(fresh);
  }
  return *device;
}

// REQUIRES: mutex held.
std::shared_ptr<actors::StreamExecutor> Engine::Impl::choose_executor(const plan::Stream& stream, Device& device) {
  std::vector<std::shared_ptr<actors::StreamExecutor>>& known =
      executors[StreamKey(stream.device, stream.kind, stream.index)];
  // A stream that computes on the thread that launches its kernels can have several executors.
  const bool shared = options.manual_stepping || device.describe().asynchronous;
  const int most = shared ? 1 : leases.cores() / std::clamp(stream.cores, 1, leases.cores());
  const auto least = std::min_element(known.begin(), known.end(),
                                      [](const auto& a, const auto& b) { return a.use_count() < b.use_count(); });
  if (least != known.end() && (least->use_count() == 1 || static_cast<int>(known.size()) >= most)) return *least;
  actors::StreamExecutor::Options o;
  o.name = fmt::format("{}/{}{}", stream.device.str(), plan::stream_kind_name(stream.kind), stream.index);
  if (!known.empty()) o.name += fmt::format(" #{}", known.size() + 1);
  o.leases = &leases;
  o.device = &device;
  o.manual = options.manual_stepping;
  o.probe = options.manual_stepping ? options.probe : nullptr;
  o.log = message_log.get();
  o.workers = &workers;
  o.cpus = options.cpus;
  o.spins = spins;
  known.push_back(
      std::make_shared<actors::StreamExecutor>(std::move(o), device.create_stream(stream.kind, stream.index)));
  return known.back();
}

void Engine::Impl::end_sessions(std::chrono::milliseconds timeout) noexcept {
  std::vector<std::weak_ptr<SessionCore>> all;
  {
    std::lock_guard lock(mutex);
    ending = true;
    all.swap(sessions);
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  // All are cancelled before one is waited for.
  for (const std::weak_ptr<SessionCore>& session : all) {
    if (const std::shared_ptr<SessionCore> core = session.lock()) core->cancel();
  }
  for (const std::weak_ptr<SessionCore>& session : all) {
    const std::shared_ptr<SessionCore> core = session.lock();
    if (core == nullptr) continue;
    core->end(std::max(deadline - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero()));
  }
}

// Whoever takes cores from now on waits until the process has ended.
void Engine::Impl::shutdown(std::chrono::milliseconds timeout) noexcept {
  if (forked()) return;
  const UninterruptedScope here;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  end_sessions(timeout);
  if (cores_taken) return;
  if (on_stream_thread()) actors::StreamExecutor::current()->give_up_lease();
  try {
    cores_taken = leases.acquire_for(leases.cores(), deadline - std::chrono::steady_clock::now());
  } catch (const std::bad_alloc&) {
    // Then kernels of other threads may still run.
  }
}

size_t Engine::Impl::reap() {
  std::vector<std::shared_ptr<SessionCore>> ended;
  std::lock_guard lock(mutex);
  for (std::shared_ptr<SessionCore>& core : abandoned) {
    if (core->actors_ended()) ended.push_back(std::move(core));
  }
  std::erase(abandoned, nullptr);
  return abandoned.size();
}

// The engines that exit() must still. The list is the process's, and stays until it ends.
struct Engine::Live {
  std::mutex mutex;
  const ForkLock fork_lock{mutex};
  std::vector<Impl*> engines;

  static Live& list() {
    static auto* const live = [] {
      auto* made = new Live();
      std::atexit([] { list().at_exit(); });
      return made;
    }();
    return *live;
  }
  void add(Impl* engine) {
    std::lock_guard lock(mutex);
    engines.push_back(engine);
  }
  void remove(Impl* engine) {
    std::lock_guard lock(mutex);
    std::erase(engines, engine);
  }
  void at_exit() {
    constexpr auto kAtExit = std::chrono::milliseconds(2000);
    std::lock_guard lock(mutex);
    for (Impl* engine : engines) engine->shutdown(std::min(kAtExit, engine->options.stop_timeout));
  }
};

Engine::Engine(EngineOptions options) : impl_(std::make_unique<Impl>(options)) {
  constexpr int kMostCores = 65536;
  SLUICE_CHECK(options.cores >= 0 && options.cores <= kMostCores,
               "engine: cores: {}; must be 1 to {}, or 0 for all there are", options.cores, kMostCores);
  log(LogLevel::kDebug, LogArea::kRuntime, "engine: {} cores{}", cores(),
      options.manual_stepping ? ", stepped by hand" : "");
  SLUICE_CHECK(options.stop_timeout.count() >= 0, "engine: stop_timeout: {} ms; must not be negative",
               options.stop_timeout.count());
  for (const int cpu : options.cpus)
    SLUICE_CHECK(may_run_on(cpu), "engine: cpus: {}; this process may not run on it", cpu);
  SLUICE_CHECK(options.watchdog.count() >= 0, "engine: watchdog: {} ms; must not be negative, 0 for never",
               options.watchdog.count());
  if (!options.record_messages.empty() || !options.replay_messages.empty()) {
    impl_->options.manual_stepping |= !options.replay_messages.empty();
    impl_->message_log = std::make_unique<actors::MessageLog>(
        actors::MessageLog::Options{options.record_messages, options.replay_messages, SLUICE_BACKEND_ABI});
  }
  Live::list().add(impl_.get());
}

Engine::~Engine() {
  log(LogLevel::kDebug, LogArea::kRuntime, "engine: ends");
  Live::list().remove(impl_.get());
  if (impl_->forked()) {  // its threads are gone, and may have held its locks
    static_cast<void>(impl_.release());
    return;
  }
  impl_->end_sessions(impl_->options.stop_timeout);
  if (!impl_->on_stream_thread() && impl_->reap() == 0) {
    impl_->system.reset();
    impl_->executors.clear();
    return;
  }
  // A thread of its own is in a kernel, be it this one: what it uses stays.
  static_cast<void>(impl_.release());
}

void Engine::shutdown(std::chrono::milliseconds timeout) noexcept { impl_->shutdown(timeout); }

void Engine::check_process() const {
  SLUICE_CHECK_KIND(
      kRuntime, !impl_->forked(),
      "engine: it was made before fork(), and threads do not survive that: plans cannot run here; make an "
      "engine in the process that runs them, or start processes by 'spawn' or 'forkserver'");
}

void Engine::check_alive() const {
  SLUICE_CHECK_KIND(kRuntime, !impl_->ending, "engine: it has ended, with the program; load plans before that");
}

const EngineOptions& Engine::options() const { return impl_->options; }
int Engine::cores() const { return impl_->leases.cores(); }
bool Engine::spins() const { return impl_->spins; }

void Engine::join(std::shared_ptr<collective::World> world) {
  std::lock_guard lock(impl_->mutex);
  impl_->options.world.swap(world);
}

std::shared_ptr<collective::World> Engine::world() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->options.world;
}

std::shared_ptr<const int> Engine::take_lane() {
  std::lock_guard lock(impl_->lanes->mutex);
  int lane = 0;
  while (impl_->lanes->held.contains(lane)) ++lane;
  std::shared_ptr<const int> taken(new int(lane), [lanes = impl_->lanes](const int* number) {
    std::lock_guard held(lanes->mutex);
    lanes->held.erase(*number);
    delete number;
  });
  impl_->lanes->held.insert(lane);
  return taken;
}

std::shared_ptr<const LoadedExtension> Engine::load_extension(const std::string& path) {
  check_process();
  std::shared_ptr<const LoadedExtension> fresh = open_extension(path);
  std::lock_guard lock(impl_->mutex);
  for (const auto& known : impl_->extensions) {
    if (known->name != fresh->name) continue;
    SLUICE_CHECK(known->library == fresh->library,
                 "extension '{}': its name '{}' is that of '{}', which is loaded; names must be unique", path,
                 fresh->name, known->path);
    return known;
  }
  add_extension_kernels(impl_->kernels, *fresh);
  impl_->extensions.push_back(fresh);
  return fresh;
}
DeviceKind Engine::load_backend(const std::string& path) {
  check_process();
  return sluice::load_backend(path);
}

std::vector<std::shared_ptr<const LoadedExtension>> Engine::extensions() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->extensions;
}

KernelTable& Engine::kernels() { return impl_->kernels; }
KernelCache& Engine::kernel_cache() { return impl_->kernel_cache; }
KernelTrials& Engine::kernel_trials() { return impl_->kernel_trials; }
PackedWeights& Engine::packed_weights() { return impl_->packed_weights; }
Deadlines& Engine::deadlines() { return impl_->deadlines; }
CoreLeases& Engine::leases() { return impl_->leases; }

Device& Engine::device(const DeviceId& id) { return impl_->device(id); }

std::shared_ptr<Allocator> Engine::allocator(const plan::Space& space) {
  const bool on_device = space.kind == plan::SpaceKind::kDevice;
  // Pinned memory is the device's to give; of devices that need none it is host memory.
  const bool by_device = on_device || (space.kind == plan::SpaceKind::kPinned && device(space.device).describe().dma);
  std::lock_guard lock(impl_->mutex);
  std::shared_ptr<Allocator>& allocator = impl_->allocators[{space.kind, by_device ? space.device : DeviceId{}}];
  if (allocator != nullptr) return allocator;
  const std::shared_ptr<CountedBytes> total = device_bytes(on_device ? space.device : DeviceId{});
  if (!by_device) return allocator = make_host_allocator(total, impl_->options.memory);
  Device& device = this->device(space.device);
  std::shared_ptr<Allocator> made = make_device_allocator(device, space, total);
  // Whoever holds the allocator, or a storage of it, holds the device.
  allocator = {made.get(), [made, device = impl_->devices[space.device]](Allocator*) mutable {
                 made.reset();
                 device.reset();
               }};
  return allocator;
}

std::shared_ptr<CountedBytes> Engine::device_bytes(const DeviceId& device) {
  std::lock_guard lock(impl_->mutex);
  std::shared_ptr<CountedBytes>& counted = impl_->device_bytes[device];
  if (counted == nullptr) counted = std::make_shared<CountedBytes>(device == DeviceId{} ? "cpu" : device.str());
  return counted;
}

std::shared_ptr<Allocator> Engine::caching_allocator() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->caching == nullptr) {
    const std::shared_ptr<CountedBytes> total = device_bytes({});
    impl_->caching = make_caching_allocator(make_host_allocator(nullptr, impl_->options.memory), {.total = total});
    total->add_cache(impl_->caching);
  }
  return impl_->caching;
}

std::shared_ptr<Storage> Engine::share(const std::string& name, std::shared_ptr<Storage> fresh, uint64_t bytes) {
  std::lock_guard lock(impl_->shared_mutex);
  std::erase_if(impl_->shared, [](const auto& entry) { return entry.second.expired(); });
  const auto [begin, end] = impl_->shared.equal_range(name);  // models may have other weights of that name
  for (auto known = begin; known != end; ++known) {
    const std::shared_ptr<Storage> held = known->second.lock();
    if (held != nullptr && held->begins_as(*fresh, bytes)) return held;
  }
  impl_->shared.emplace(name, fresh);
  return fresh;
}

AllocatorStats Engine::allocator_stats(const plan::Space& space) { return allocator(space)->stats(); }
void Engine::reset_allocator_peak(const plan::Space& space) { allocator(space)->reset_peak(); }

// The next message of the order that is replayed. False when there is none, and the run goes on in any order.
bool Engine::Impl::step_recorded() {
  for (const auto& [executor, pending] : ready)
    if (executor->step_call()) return true;
  const std::optional<actors::MessageLog::Next> next = message_log->next();
  if (!next.has_value()) {
    message_log->leave("the order ends here, and the run goes on; it must do what it did when it was recorded");
    return false;
  }
  for (const auto& [executor, pending] : ready) {
    if (!executor->step_recorded(next->id, next->how, next->starts)) continue;
    message_log->take(*next);
    return true;
  }
  message_log->leave(message_log->where() + ": nobody has sent it; the run must do what it did when it was recorded");
  return false;
}

bool Engine::step() {
  SLUICE_CHECK_KIND(kRuntime, impl_->options.manual_stepping,
                    "engine: step() without manual stepping; set EngineOptions::manual_stepping");
  std::lock_guard stepping(impl_->stepping);
  std::vector<std::pair<actors::StreamExecutor*, size_t>>& ready = impl_->ready;
  ready.clear();
  size_t total = 0, free = 0;
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& [key, executors] : impl_->executors) {
      for (const auto& executor : executors) {
        const size_t pending = executor->pending();
        if (pending == 0) continue;
        ready.push_back({executor.get(), pending});
        total += pending;
        if (impl_->options.probe != nullptr) free += executor->free_pending();
      }
    }
  }
  if (impl_->message_log != nullptr && impl_->message_log->replays() && !impl_->message_log->left() &&
      impl_->step_recorded())
    return true;
  if (total == 0) return false;
  if (free > 0) {  // what a probe holds back comes last
    total = free;
    for (auto& [executor, pending] : ready) pending = executor->free_pending();
  }
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

void Engine::reseed(uint64_t seed) {
  std::lock_guard stepping(impl_->stepping);
  impl_->random.seed(seed);
}

std::vector<std::shared_ptr<actors::StreamExecutor>> Engine::executors(const std::vector<plan::Stream>& streams) {
  std::lock_guard lock(impl_->mutex);
  check_alive();
  std::map<Impl::StreamKey, std::shared_ptr<actors::StreamExecutor>> chosen;  // a plan has one of each
  std::vector<std::shared_ptr<actors::StreamExecutor>> result;
  for (const plan::Stream& stream : streams) {
    std::shared_ptr<actors::StreamExecutor>& one = chosen[{stream.device, stream.kind, stream.index}];
    if (one == nullptr) one = impl_->choose_executor(stream, device(stream.device));
    result.push_back(one);
  }
  return result;
}

WorkerThreads& Engine::workers() { return impl_->workers; }

bool Engine::on_stream_thread() const { return impl_->on_stream_thread(); }

actors::System& Engine::actor_system() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->system == nullptr) {
    const auto watchdog = impl_->options.manual_stepping ? std::chrono::milliseconds(0) : impl_->options.watchdog;
    impl_->system = std::make_unique<actors::System>(watchdog);
  }
  return *impl_->system;
}

void Engine::keep_until_ended(std::shared_ptr<SessionCore> core, const std::vector<actors::StreamExecutor*>& stuck) {
  std::lock_guard lock(impl_->mutex);
  impl_->abandoned.push_back(std::move(core));
  for (actors::StreamExecutor* stream : stuck) stream->leave_behind();  // who waits for it takes another
  for (auto& [key, executors] : impl_->executors) {
    std::erase_if(executors, [&](const auto& executor) {
      return std::find(stuck.begin(), stuck.end(), executor.get()) != stuck.end();
    });
  }
}

void Engine::adopt(std::shared_ptr<SessionCore> core) {
  impl_->reap();
  std::lock_guard lock(impl_->mutex);
  check_alive();
  std::erase_if(impl_->sessions, [](const auto& session) { return session.expired(); });
  // Room for all of them to be abandoned: that must not fail.
  impl_->abandoned.reserve(impl_->abandoned.size() + impl_->sessions.size() + 1);
  impl_->sessions.push_back(core);
}

}  // namespace sluice
