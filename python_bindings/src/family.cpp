// Plan families: which member runs a call (plan/family/family.h). Dims are tuples (name, min, max, fit), inputs
// (name, dtype, [(dim, size) of each axis]), and types (name, dtype, shape).
#include "plan/family/family.h"

#include <nanobind/stl/map.h>

#include "bindings.h"
#include "graph_object.h"
#include "runtime/session/shared_arenas.h"
#include "tensor/eager.h"

namespace sluice::python {
namespace {

plan::Family make_family(const std::string& name, const nb::list& dims, const nb::list& inputs,
                         const std::vector<plan::Extents>& members) {
  plan::Family family{name, {}, {}, {}, members};
  for (nb::handle d : dims) {
    family.dims.push_back({nb::cast<std::string>(d[0]), nb::cast<int64_t>(d[1]), nb::cast<int64_t>(d[2]),
                           plan::parse_fit(nb::cast<std::string>(d[3]))});
  }
  for (nb::handle p : inputs) {
    plan::FamilyPort port{nb::cast<std::string>(p[0]), nb::cast<DType>(p[1]), {}};
    for (const auto& [dim, size] : nb::cast<std::vector<std::pair<int, int64_t>>>(p[2]))
      port.axes.push_back({dim, size});
    family.inputs.push_back(std::move(port));
  }
  return family;
}

// Per member, (name, dtype, shape) of each port.
std::vector<std::vector<plan::NamedType>> types_of(const nb::list& members) {
  std::vector<std::vector<plan::NamedType>> types;
  for (nb::handle of_member : members) {
    std::vector<plan::NamedType>& ports = types.emplace_back();
    for (nb::handle t : of_member)
      ports.push_back({nb::cast<std::string>(t[0]), {nb::cast<DType>(t[1]), nb::cast<Shape>(t[2])}});
  }
  return types;
}

void bind_outputs(plan::Family& family, const std::vector<plan::Extents>& extents, const nb::list& types) {
  const std::vector<std::vector<plan::NamedType>> known = types_of(types);
  SLUICE_CHECK(!known.empty() && known.size() == extents.size(), "family '{}': types for {} of {} members", family.name,
               known.size(), extents.size());
  family.outputs = plan::outputs_of(family, extents, known);
  plan::check_family(family);
}

// The dim of each axis of each port, -1 for those that are as long in every call.
nb::list axes_of(const std::vector<plan::FamilyPort>& ports) {
  nb::list all;
  for (const plan::FamilyPort& port : ports) {
    nb::list axes;
    for (const plan::FamilyAxis& axis : port.axes) axes.append(axis.dim);
    all.append(axes);
  }
  return all;
}

}  // namespace

void bind_family(nb::module_& m) {
  nb::class_<PyArenas>(
      m, "SharedArenas",
      "Memory for what several graphs compute, as large as the largest of them needs: GraphConfig.set_arenas, "
      "load_graph(arenas=...). One of the graphs at a time has steps in flight, and calls of others wait.")
      .def("__init__",
           [](PyArenas* self) { new (self) PyArenas{std::make_shared<SharedArenas>(default_eager().engine())}; })
      .def("bytes",
           [](const PyArenas& self, const std::string& space) { return self.arenas->bytes(space_named(space)); });
  nb::class_<plan::Family>(m, "Family", "Plans of one graph for several extents of named dims.")
      .def(
          "__init__",
          [](plan::Family* self, const std::string& name, const nb::list& dims, const nb::list& inputs,
             const std::vector<plan::Extents>& members) {
            new (self) plan::Family(make_family(name, dims, inputs, members));
          },
          nb::arg("name"), nb::arg("dims"), nb::arg("inputs"), nb::arg("members"))
      .def("bind_outputs", &bind_outputs, nb::arg("extents"), nb::arg("types"))
      .def("with_member",
           [](const plan::Family& f, const plan::Extents& extents) {
             plan::Family more = f;
             more.members.push_back(extents);
             plan::check_family(more);
             return more;
           })
      .def("probes", [](const plan::Family& f) { return plan::probes_of(f.dims, f.members); })
      .def("extents_of",
           [](const plan::Family& f, const std::vector<Shape>& shapes) { return plan::extents_of(f, shapes); })
      .def("parts_of",
           [](const plan::Family& f, const plan::Extents& extents) {
             nb::list parts;
             for (const plan::Part& p : plan::parts_of(f, extents))
               parts.append(nb::make_tuple(p.member, p.start, p.extents));
             return parts;
           })
      .def("input_shapes",
           [](const plan::Family& f, const plan::Extents& extents) {
             nb::list shapes;
             for (const plan::FamilyPort& port : f.inputs) shapes.append(port.shape(extents));
             return shapes;
           })
      .def_prop_ro("name", [](const plan::Family& f) { return f.name; })
      .def_prop_ro("dims",
                   [](const plan::Family& f) {
                     nb::list dims;
                     for (const plan::Dim& d : f.dims)
                       dims.append(nb::make_tuple(d.name, d.min, d.max, plan::fit_name(d.fit)));
                     return dims;
                   })
      .def_prop_ro("members", [](const plan::Family& f) { return f.members; })
      .def_prop_ro("input_axes", [](const plan::Family& f) { return axes_of(f.inputs); })
      .def_prop_ro("output_axes", [](const plan::Family& f) { return axes_of(f.outputs); });
  m.def("check_dim",
        [](const std::string& name, int64_t min, int64_t max, const std::string& fit, const plan::Extents& buckets) {
          plan::check_dim({name, min, max, plan::parse_fit(fit)}, buckets);
        });
  m.def("exact_family", [](const std::string& name, const nb::list& inputs, const nb::list& outputs) {
    return plan::exact_family(name, types_of(inputs), types_of(outputs));
  });
  m.attr("most_members") = plan::kMostMembers;
  m.def("powers_of_two", &plan::powers_of_two);
  m.def("all_extents", &plan::all_extents);
}

}  // namespace sluice::python
