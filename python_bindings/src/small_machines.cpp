// Saved graphs as C for machines without Sluice, and such a machine as a device of the engine.
#include "small_machines.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include "bindings.h"
#include "kernels/c/engine_device.h"
#include "kernels/meta/meta_device.h"
#include "streams/linked_backend.h"
#include "tensor/c/to_c.h"
#include "tensor/eager.h"

namespace sluice::python {
namespace {

const char* kind_name(c::Tensor::Kind kind) {
  switch (kind) {
    case c::Tensor::Kind::kMemory: return "memory";
    case c::Tensor::Kind::kState: return "state";
    case c::Tensor::Kind::kConstant: break;
  }
  return "constant";
}

}  // namespace

void bind_small_machines(nb::module_& m) {
  add_backend(c::backend());
  add_backend(meta::backend());
  nb::class_<c::PlanSource>(m, "CSource")
      .def_ro("name", &c::PlanSource::name)
      .def_ro("source", &c::PlanSource::source)
      .def_ro("header", &c::PlanSource::header)
      .def_ro("memory", &c::PlanSource::memory)
      .def_ro("state", &c::PlanSource::state)
      .def_ro("constants", &c::PlanSource::constants)
      .def_prop_ro("tensors", [](const c::PlanSource& made) {
        nb::list list;
        for (const c::Tensor& tensor : made.tensors)
          list.append(nb::make_tuple(tensor.name, kind_name(tensor.kind), tensor.bytes, tensor.offset, tensor.section));
        return list;
      });
  m.def(
      "c_project",
      [](const std::string& bundle, const std::string& name, const std::vector<std::vector<Tensor>>& steps,
         uint64_t flash, uint64_t ram, uint64_t memory_budget, const c::Sections& sections) {
        EagerExecutor& eager = default_eager();
        const ExecutorScope scope(eager);
        const ToCOptions options{.name = name, .memory_budget = memory_budget, .sections = sections};
        const c::PlanSource made = to_c(eager, saved_graph(bundle, eager.ops()), options);
        const c::Machine machine{.flash = flash, .ram = ram};
        c::check_fits(made, machine);
        CapturedGraph again = saved_graph(bundle, eager.ops());
        std::vector<std::vector<Tensor>> given = steps;
        if (given.empty()) given.push_back(zero_inputs(again));
        return std::pair(made, c::project_files(made, machine, known_steps(eager, std::move(again), given, options)));
      },
      Release(), nb::arg("bundle"), nb::arg("name"), nb::arg("steps"), nb::arg("flash"), nb::arg("ram"),
      nb::arg("memory_budget") = 0, nb::arg("sections") = c::Sections());
  m.def(
      "c_source",
      [](const std::string& bundle, const std::string& name, uint64_t memory_budget,
         const std::vector<std::string>& without, const std::string& order) {
        EagerExecutor& eager = default_eager();
        const ExecutorScope scope(eager);
        return to_c(eager, saved_graph(bundle, eager.ops()),
                    {.name = name, .memory_budget = memory_budget, .disabled_passes = without, .order = order});
      },
      Release(), nb::arg("bundle"), nb::arg("name") = "", nb::arg("memory_budget") = 0,
      nb::arg("without") = std::vector<std::string>(), nb::arg("order") = "memory");
}

}  // namespace sluice::python
