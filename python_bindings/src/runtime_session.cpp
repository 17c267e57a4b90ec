// An engine of its own that runs bundles, beside the default one: what a C++ service does, from Python.
#include "both.h"
#include "graph_object.h"
#include "plan/ledger.h"
#include "runtime/bundle.h"
#include "runtime/engine.h"
#include "runtime/session.h"

namespace sluice::python {
namespace {

struct PySession {
  std::shared_ptr<Engine> engine;  // outlives the session
  Session session;
  ~PySession() {
    nb::gil_scoped_release release;
    session.stop();
  }
};

std::vector<Value> run(PySession& self, const std::vector<Value>& inputs) {
  std::vector<InputTensor> data;
  for (const Value& input : inputs) data.push_back({Tensor(input).read("run"), Tensor(input).spec()});
  StepHandle step = self.session.submit(data);
  std::vector<Value> outputs;
  for (const OutputTensor& output : step.outputs())
    outputs.emplace_back(std::make_shared<EagerImpl>(output.storage, TensorSpec::contiguous(output.type), DeviceId{}));
  return outputs;
}

plan::Space space_named(const std::string& name) {
  if (name == "host") return {plan::SpaceKind::kHost, {}};
  if (name == "pinned") return {plan::SpaceKind::kPinned, {}};
  return {plan::SpaceKind::kDevice, parse_device(name)};
}

}  // namespace

nb::dict allocator_stats(Engine& engine, const std::string& space) {
  const AllocatorStats stats = engine.allocator_stats(space_named(space));
  nb::dict d;
  d["current_bytes"] = stats.current_bytes;
  d["peak_bytes"] = stats.peak_bytes;
  d["allocations"] = stats.allocations;
  return d;
}

void bind_runtime(nb::module_& m) {
  nb::class_<PySession>(m, "RuntimeSession")
      .def("run", &run, Release(), nb::arg("inputs"))
      .def("ledger_bytes", [](const PySession& s) { return plan::ledger(s.session.plan()).total; });
  struct PyEngine {
    std::shared_ptr<Engine> engine;
  };
  nb::class_<PyEngine>(m, "Engine",
                       "An engine of its own: devices, stream threads and memory apart from the default one's.")
      .def(
          "__init__",
          [](PyEngine* self, int cores) {
            EngineOptions options;
            options.cores = cores;
            new (self) PyEngine{std::make_shared<Engine>(options)};
          },
          nb::arg("cores") = 0)
      .def(
          "load",
          [](PyEngine& self, const std::string& dir, const nb::dict& functions) {
            SessionOptions options;
            for (auto [name, function] : functions) {
              const std::string key = nb::cast<std::string>(name);
              options.functions[key] = host_function_of(key, nb::borrow(function));
            }
            nb::gil_scoped_release release;
            return new PySession{self.engine, load_session(*self.engine, dir, std::move(options))};
          },
          nb::arg("directory"), nb::arg("functions") = nb::dict(), nb::rv_policy::take_ownership)
      .def(
          "memory_stats", [](PyEngine& self, const std::string& space) { return allocator_stats(*self.engine, space); },
          nb::arg("space") = "host");
}

}  // namespace sluice::python
