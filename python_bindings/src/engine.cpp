// The process's default engine: made on first use, shut down at exit.
#include "runtime/session/engine.h"

#include <atomic>
#include <mutex>

#include "base/denormals.h"
#include "base/files/image_use.h"
#include "base/fork.h"
#include "base/log.h"
#include "bindings.h"
#include "kernels/cpu/generated/host_compiler.h"
#include "kernels/trials.h"
#include "live_graphs.h"
#include "memory/counted_bytes.h"
#include "plan/foreign/foreign.h"
#include "streams/backend.h"
#include "tensor/device_queue.h"
#include "tensor/eager.h"

namespace sluice::python {
namespace {

constexpr std::chrono::milliseconds kAtExit{800};

struct Default {
  std::mutex mutex;
  const ForkLock fork_lock{mutex};
  EngineOptions options;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EagerExecutor> eager;  // once made, there for ever
  std::atomic<EagerExecutor*> made{nullptr};
  std::shared_ptr<const OpRegistry> ops;  // outlives the executor, as values and graphs may
  bool closed = false;
};

Default& process_default() {
  static auto* state = new Default();  // tensors may outlive main
  return *state;
}

// Stands for the eager executor until the first op makes it.
class LazyExecutor final : public Executor, public TensorExecutor {
 public:
  std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override {
    return eager().call(op, inputs, attrs);
  }
  void assign(const Value& target, const Value& source) override { eager().assign(target, source); }
  Value detach(const Value& value) override { return eager().detach(value); }
  Value copy(const Value& value) override { return eager().copy(value); }
  std::vector<Value> placed(const OpDef& op, std::span<const Value> inputs) override {
    return eager().placed(op, inputs);
  }
  std::shared_ptr<const Provenance> origin() override { return eager().origin(); }
  EagerExecutor& eager() override { return default_eager(); }
};

void synchronize_device(const DeviceId& device) {
  EagerExecutor& eager = default_eager();
  eager.engine().device(device);
  if (const auto queue = eager.find_queue(device)) queue->synchronize();
}

// The counted bytes of a device's memory. Throws what says why there is no such device.
std::shared_ptr<CountedBytes> bytes_of(const DeviceId& device) {
  Engine& engine = default_eager().engine();
  engine.device(device);
  return engine.device_bytes(device);
}

nb::object limit_object(uint64_t bytes) {
  return bytes == CountedBytes::kNoLimit ? nb::none() : nb::object(nb::int_(bytes));
}

nb::dict device_memory(const DeviceId& device) {
  std::shared_ptr<CountedBytes> bytes;
  AllocatorStats used;
  uint64_t kept = 0;
  {
    GilRelease release;
    bytes = bytes_of(device);
    used = bytes->stats();
    kept = bytes->kept_bytes();
  }
  nb::dict counts;
  counts["current_bytes"] = used.current_bytes;
  counts["peak_bytes"] = used.peak_bytes;
  counts["reserved_bytes"] = used.current_bytes + kept;
  counts["limit"] = limit_object(bytes->limit());
  counts["cache_limit"] = limit_object(bytes->cache_limit());
  counts["total_bytes"] = default_eager().engine().device(device).describe().memory_bytes;  // 0: unknown
  return counts;
}

}  // namespace

Spin spin_of(const std::string& name) {
  if (name == "auto") return Spin::kAuto;
  if (name == "never") return Spin::kNever;
  if (name == "always") return Spin::kAlways;
  fail(ErrorKind::kValue, "engine: spin: '{}'; must be 'auto', 'never' or 'always'", name);
}

void join_world(std::shared_ptr<collective::World> world) {
  Default& state = process_default();
  std::lock_guard lock(state.mutex);
  state.options.world = world;
  if (state.engine) state.engine->join(std::move(world));
}

EagerExecutor& default_eager() {
  Default& state = process_default();
  if (EagerExecutor* made = state.made.load(std::memory_order_acquire)) return *made;  // every op asks for it
  std::lock_guard lock(state.mutex);
  if (!state.eager) {
    if (state.closed) fail(ErrorKind::kRuntime, "engine: the default engine was shut down; no further op can run");
    state.engine = std::make_unique<Engine>(state.options);
    state.eager = std::make_unique<EagerExecutor>(*state.engine);
    state.ops = state.eager->ops_owner();
    state.made.store(state.eager.get(), std::memory_order_release);
    log(LogLevel::kDebug, LogArea::kPython, "default engine: made");
  }
  return *state.eager;
}

namespace {

void bind_engine_life(nb::module_& m) {
  m.def(
      "configure_engine",
      [](int cores, int watchdog_ms, const std::vector<int>& cpus, const std::string& spin) {
        Default& state = process_default();
        if (state.engine)
          fail(ErrorKind::kRuntime, "configure_engine: the default engine runs already; call it before the first op");
        state.options.cores = cores;
        state.options.watchdog = std::chrono::milliseconds(watchdog_ms);
        state.options.cpus = cpus;
        state.options.spin = spin_of(spin);
      },
      nb::arg("cores") = 0, nb::arg("watchdog_ms") = 10000, nb::arg("cpus") = std::vector<int>(),
      nb::arg("spin") = "auto");
  m.def(
      "load_backend",
      [](const std::string& path) {
        return plan::is_foreign(path) ? plan::load_foreign(path).name() : load_backend(path).str();
      },
      nb::arg("path"), nb::call_guard<GilRelease>());
  m.def(
      "load_foreign", [](const std::string& given) { return plan::load_foreign(given).name(); }, nb::arg("given"),
      nb::call_guard<GilRelease>());
  m.def(
      "shutdown",
      [] {
        let_ended_threads_sleep();
        Default& state = process_default();
        GilRelease release;
        Engine* engine = nullptr;
        EagerExecutor* eager = nullptr;
        {
          std::lock_guard lock(state.mutex);
          state.closed = true;
          engine = state.engine.get();
          eager = state.eager.get();
        }
        if (eager != nullptr) eager->close(kAtExit);
        finish_all_graphs(kAtExit / 2);
        // It stays, as far as memory goes: daemon threads may be in the middle of an op.
        if (engine != nullptr) {
          log(LogLevel::kDebug, LogArea::kPython, "default engine: is shut down");
          engine->shutdown(kAtExit);
        }
        shutdown_engines(kAtExit);
      },
      "Ends all graphs and engines; called at exit.");
}

// Eager kernels run on these threads, and may be timed there.
void bind_eager_threads(nb::module_& m) {
  m.def("cores", [] { return default_eager().engine().cores(); });
  m.def("set_num_threads", [](int threads) { default_eager().set_threads(threads); });
  m.def(
      "set_flush_denormals",
      [](bool on) {
        if (kFlushesDenormals) default_eager().set_flush_denormals(on);
        return kFlushesDenormals;
      },
      "Whether kernels of eager calls take denormal numbers for zero. False: this processor has no such mode.");
  m.def(
      "time_kernels", [](bool on) { default_eager().time_kernels(on); },
      "Whether kernels of eager calls are timed; see kernel_time().");
  m.def(
      "kernel_time",
      [] {
        const EagerExecutor::KernelTime time = default_eager().kernel_time();
        return nb::make_tuple(time.ns, time.calls);
      },
      "(nanoseconds, calls) of the kernels of eager calls, as far as they were timed.");
  m.def("get_num_threads", [] { return default_eager().threads(); });
}

void bind_engine_devices(nb::module_& m) {
  m.def(
      "check_device", [](const DeviceId& device) { default_eager().engine().device(device); }, Release(),
      nb::arg("device"), "Raises what says why there is no such device.");
  m.def(
      "synchronize_device", [](const DeviceId& device) { synchronize_device(device); }, Release(), nb::arg("device"),
      "Waits for the eager ops that the device has been given, and raises their failure.");
}

// These functions tell what memory is in use, and set its limits.
void bind_engine_memory(nb::module_& m) {
  m.def(
      "memory_stats", [](const std::string& space) { return allocator_stats(default_eager().engine(), space); },
      nb::arg("space") = "host", "Bytes as the engine's allocator counts them.");
  m.def(
      "empty_device_cache", [](const DeviceId& device) { bytes_of(device)->release_kept(); }, Release(),
      nb::arg("device"), "Gives memory that is kept for the next tensors back to the device.");
  m.def(
      "device_memory", [](const DeviceId& device) { return device_memory(device); }, nb::arg("device"),
      "Bytes in use on a device, the most that were, what has been taken from it, and its limits.");
  m.def(
      "reset_device_peak", [](const DeviceId& device) { bytes_of(device)->reset_peak(); }, Release(),
      nb::arg("device"));
  m.def(
      "set_device_limit",
      [](const DeviceId& device, std::optional<uint64_t> bytes) {
        bytes_of(device)->set_limit(bytes.value_or(CountedBytes::kNoLimit));
      },
      Release(), nb::arg("device"), nb::arg("bytes").none(), "Of bytes in use on a device; None: none.");
  m.def(
      "set_device_cache_limit",
      [](const DeviceId& device, std::optional<uint64_t> bytes) {
        bytes_of(device)->set_cache_limit(bytes.value_or(CountedBytes::kNoLimit));
      },
      Release(), nb::arg("device"), nb::arg("bytes").none(), "Of bytes kept for the next tensors; None: none.");
  m.def(
      "eager_memory_stats",
      [] {
        const AllocatorStats stats = default_eager().engine().caching_allocator()->stats();
        nb::dict counts;
        counts["current_bytes"] = stats.current_bytes;
        counts["peak_bytes"] = stats.peak_bytes;
        return counts;
      },
      "Bytes of eager tensors in host memory, without what the cache keeps for the next ones.");
}

// These functions tell which kernels were prepared, how they did in trials, and what images have taken.
void bind_kernel_counts(nb::module_& m) {
  m.def("host_compiler", [] { return generated::host_compiler(); });
  m.def(
      "compile_extension",
      [](const std::string& source) {
        static auto* const kept = new std::vector<std::shared_ptr<const generated::Code>>;  // libraries stay loaded
        std::shared_ptr<const generated::Code> code;
        {
          GilRelease release;
          code = generated::compile(source);
        }
        kept->push_back(code);
        return code->path();
      },
      nb::arg("source"),
      "Compiles a C++ source, which may include include/sluice/extension.h. Returns the file of the library, which is "
      "there as long as the process.");
  m.def("kernel_trial_stats", [] {
    const KernelTrials::Stats stats = default_eager().engine().kernel_trials().stats();
    nb::dict d;
    d["searches"] = stats.searches;
    d["read"] = stats.read;
    d["hits"] = stats.hits;
    d["entries"] = stats.entries;
    return d;
  });
  m.def("image_use", [](int64_t meter) {
    const ImageUse& use = image_use(meter);
    nb::dict d;
    d["images"] = use.images.load();
    d["file_bytes"] = use.file_bytes.load();
    d["pixels"] = use.pixels.load();
    d["decoder_bytes"] = use.decoder_bytes.load();
    return d;
  });
  m.def("kernel_trials_used", [] { return default_eager().engine().kernel_trials().used(); });
  m.def(
      "kernel_trials",
      [](uint64_t used) {
        nb::list list;
        for (const KernelTrials::Trial& trial : default_eager().engine().kernel_trials().trials(used)) {
          nb::list candidates;
          for (const KernelTrials::Candidate& c : trial.candidates) candidates.append(nb::make_tuple(c.name, c.ns));
          list.append(nb::make_tuple(trial.kernel, candidates, trial.chosen));
        }
        return list;
      },
      nb::arg("used"));
  m.def(
      "kernel_stats", [] { return kernel_stats(default_eager().engine()); },
      "What the engine's cache of prepared kernels counts.");
}

}  // namespace

void bind_engine(nb::module_& m) {
  static auto* lazy = new LazyExecutor();
  set_default_executor(lazy);
  bind_engine_life(m);
  bind_eager_threads(m);
  bind_engine_devices(m);
  bind_engine_memory(m);
  bind_kernel_counts(m);
}

}  // namespace sluice::python
