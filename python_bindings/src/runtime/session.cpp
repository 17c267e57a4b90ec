// An engine of its own that runs bundles, beside the default one: what a C++ service does, from Python.
#include <mutex>

#include "bindings.h"
#include "graph_object.h"
#include "kernels/kernel_cache.h"
#include "live_graphs.h"
#include "memory/counted_bytes.h"
#include "runtime/family/family.h"
#include "runtime/session/engine.h"

namespace sluice::python {
namespace {

struct PySession {
  std::shared_ptr<Engine> engine;  // outlives the session
  std::optional<SessionFamily> session;
  ~PySession() {
    GilRelease release;
    session.reset();
    engine.reset();
  }
};

std::vector<Value> run(PySession& self, const std::vector<Value>& inputs) {
  std::vector<InputTensor> data;
  for (const Value& input : inputs) data.push_back({Tensor(input).read("run"), Tensor(input).spec()});
  FamilyStep step = self.session->submit(data);
  std::vector<Value> outputs;
  for (const OutputTensor& output : step.outputs())
    outputs.emplace_back(std::make_shared<EagerImpl>(output.storage, TensorSpec::contiguous(output.type), DeviceId{}));
  return outputs;
}

struct LiveEngines {
  std::mutex mutex;
  std::vector<std::weak_ptr<Engine>> engines;
};
LiveEngines& live_engines() {
  static auto* live = new LiveEngines();
  return *live;
}

std::shared_ptr<Engine> make_engine(const EngineOptions& options) {
  auto engine = std::make_shared<Engine>(options);
  std::lock_guard lock(live_engines().mutex);
  std::erase_if(live_engines().engines, [](const auto& e) { return e.expired(); });
  live_engines().engines.push_back(engine);
  return engine;
}

}  // namespace

plan::Space space_named(const std::string& name) {
  if (name == "host") return {plan::SpaceKind::kHost, {}};
  if (constexpr std::string_view kPinned = "pinned:"; name.starts_with(kPinned)) {
    return {plan::SpaceKind::kPinned, parse_device(name.substr(kPinned.size()))};
  }
  return {plan::SpaceKind::kDevice, parse_device(name)};
}

nb::dict allocator_stats(Engine& engine, const std::string& space) {
  const plan::Space where = space_named(space);
  if (where.kind == plan::SpaceKind::kDevice) engine.device(where.device);  // or says why not
  const AllocatorStats stats = where.kind == plan::SpaceKind::kDevice ? engine.device_bytes(where.device)->stats()
                                                                      : engine.allocator_stats(where);
  nb::dict d;
  d["current_bytes"] = stats.current_bytes;
  d["peak_bytes"] = stats.peak_bytes;
  d["allocations"] = stats.allocations;
  return d;
}

nb::dict kernel_stats(Engine& engine) {
  const KernelCache::Stats stats = engine.kernel_cache().stats();
  nb::dict d;
  d["hits"] = stats.hits;
  d["misses"] = stats.misses;
  d["prepare_ms"] = static_cast<double>(stats.prepare_ns) * 1e-6;
  d["entries"] = stats.entries;
  d["bytes"] = stats.bytes;
  return d;
}

void shutdown_engines(std::chrono::milliseconds timeout) {
  std::vector<std::shared_ptr<Engine>> engines;
  {
    std::lock_guard lock(live_engines().mutex);
    for (const std::weak_ptr<Engine>& engine : live_engines().engines) engines.push_back(engine.lock());
  }
  for (const std::shared_ptr<Engine>& engine : engines) {
    if (engine != nullptr) engine->shutdown(timeout);
  }
}

void bind_runtime(nb::module_& m) {
  nb::class_<PySession>(m, "RuntimeSession")
      .def("run", &run, Release(), nb::arg("inputs"))
      .def(
          "reset", [](PySession& s) { s.session->reset(); }, Release(), "Begins anew, after EndOfData or at any time.")
      .def("counters", [](const PySession& s) { return counters_of(s.session->stats()); })
      .def("counters_text", [](const PySession& s) { return s.session->stats().str(); })
      .def("ledger_bytes", [](const PySession& s) { return s.session->ledger().total; });
  struct PyEngine {
    std::shared_ptr<Engine> engine;
  };
  nb::class_<PyEngine>(m, "Engine",
                       "An engine of its own: devices, stream threads and memory apart from the default one's.")
      .def(
          "__init__",
          [](PyEngine* self, int cores, const std::vector<int>& cpus, const std::string& spin) {
            EngineOptions options;
            options.cores = cores;
            options.cpus = cpus;
            options.spin = spin_of(spin);
            new (self) PyEngine{make_engine(options)};
          },
          nb::arg("cores") = 0, nb::arg("cpus") = std::vector<int>(), nb::arg("spin") = "auto")
      .def(
          "load",
          [](PyEngine& self, const std::string& dir, const nb::dict& functions) {
            SessionOptions options;
            for (auto [name, function] : functions) {
              const std::string key = nb::cast<std::string>(name);
              options.functions[key] = host_function_of(key, nb::borrow(function));
            }
            GilRelease release;
            return new PySession{self.engine, SessionFamily::load(*self.engine, dir, std::move(options))};
          },
          nb::arg("directory"), nb::arg("functions") = nb::dict(), nb::rv_policy::take_ownership)
      .def(
          "load_library", [](PyEngine& self, const std::string& path) { self.engine->load_extension(path); },
          nb::arg("path"), "Loads a shared library of ops and kernels, as sluice.ops.load_library does.")
      .def(
          "memory_stats", [](PyEngine& self, const std::string& space) { return allocator_stats(*self.engine, space); },
          nb::arg("space") = "host")
      .def("kernel_stats", [](PyEngine& self) { return kernel_stats(*self.engine); });
}

}  // namespace sluice::python
