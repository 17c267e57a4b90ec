#include "same_objects.h"

#include "collected.h"

namespace sluice::python {
namespace {

std::vector<nb::object> values_of(const nb::dict& table) {
  std::vector<nb::object> values;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(table.ptr(), &at, &key, &value);) values.push_back(nb::borrow(value));
  return values;
}

// Borrowed, as it lies in the class or in a base; null: none has it. Python caches these answers.
PyObject* in_class(const nb::type_object& owner, const nb::str& name) {
  return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner.ptr()), name.ptr());
}

// Borrowed; null: there is no such entry, or no dict.
PyObject* in_dict(nb::handle table, nb::handle key) {
  return table.is_valid() && PyDict_Check(table.ptr()) ? PyDict_GetItemWithError(table.ptr(), key.ptr()) : nullptr;
}

std::array<PyObject*, 3> parts_of(const nb::object& function) {
  PyObject* f = function.ptr();
  return {PyFunction_GetCode(f), PyFunction_GetDefaults(f), PyFunction_GetKwDefaults(f)};
}

}  // namespace

SameObjects::SameObjects(const Watched& watched, nb::handle own) {
  for (const nb::dict& table : watched.tables) tables_.push_back({table, values_of(table)});
  for (const auto& [table, key] : watched.entries) {
    const nb::handle in = table.is_none() ? own : nb::handle(table);
    entries_.push_back({table.is_none() ? nb::object() : table, key, nb::borrow(in_dict(in, key))});
  }
  for (const nb::handle_t<Tensor>& tensor : watched.tensors) {
    const Tensor& t = *nb::inst_ptr<Tensor>(tensor);
    tensors_.push_back({nb::borrow(tensor), t, t.requires_grad()});
  }
  for (const nb::object& cell : watched.cells) cells_.push_back({cell, nb::borrow(PyCell_GET(cell.ptr()))});
  for (const auto& [owner, name] : watched.classes)
    attributes_.push_back({owner, name, nb::borrow(in_class(owner, name))});
  for (const nb::object& object : watched.typed)
    typed_.emplace_back(object, nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))));
  for (const nb::object& function : watched.functions) {
    Function& added = functions_.emplace_back(Function{function, {}});
    for (size_t i = 0; i < added.parts.size(); ++i) added.parts[i] = nb::borrow(parts_of(function)[i]);
  }
  for (const nb::object& container : watched.containers) containers_.emplace_back(container);
}

bool SameObjects::hold(nb::handle own) const {
  for (const Table& t : tables_)
    if (!holds(t)) return false;
  for (const Entry& e : entries_) {
    PyObject* table = e.table.ptr();
    PyObject* now = table != nullptr ? PyDict_GetItemWithError(table, e.key.ptr()) : in_dict(own, e.key);
    if (now != e.value.ptr()) return false;
  }
  for (const Memory& m : tensors_) {
    const Tensor& t = *nb::inst_ptr<Tensor>(m.tensor);
    if (t.impl() != m.memory.impl() || t.requires_grad() != m.requires_grad) return false;
  }
  for (const Cell& c : cells_)
    if (PyCell_GET(c.cell.ptr()) != c.content.ptr()) return false;
  for (const Attribute& a : attributes_)
    if (in_class(a.owner, a.name) != a.value.ptr()) return false;
  for (const auto& [object, type] : typed_)
    if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != type.ptr()) return false;
  for (const Function& f : functions_) {
    const std::array<PyObject*, 3> now = parts_of(f.function);
    for (size_t i = 0; i < now.size(); ++i)
      if (now[i] != f.parts[i].ptr()) return false;
  }
  for (const SameContents& c : containers_)
    if (!c.hold()) return false;
  return true;
}

bool SameObjects::holds(const Table& t) {
  if (static_cast<size_t>(PyDict_GET_SIZE(t.table.ptr())) != t.values.size()) return false;
  if (t.values.empty()) return true;
  PyObject *key = nullptr, *value = nullptr;
  size_t i = 0;
  for (Py_ssize_t at = 0; PyDict_Next(t.table.ptr(), &at, &key, &value);)
    if (value != t.values[i++].ptr()) return false;
  return true;
}

int SameObjects::visit(visitproc visit, void* arg) const {
  for (const Table& t : tables_) {
    Py_VISIT(t.table.ptr());
    for (const nb::object& value : t.values) Py_VISIT(value.ptr());
  }
  for (const Entry& e : entries_) {
    Py_VISIT(e.table.ptr());
    Py_VISIT(e.value.ptr());
  }
  for (const Memory& m : tensors_) Py_VISIT(m.tensor.ptr());
  for (const Cell& c : cells_) {
    Py_VISIT(c.cell.ptr());
    Py_VISIT(c.content.ptr());
  }
  for (const Attribute& a : attributes_) {
    Py_VISIT(a.owner.ptr());
    Py_VISIT(a.value.ptr());
  }
  for (const auto& [object, type] : typed_) {
    Py_VISIT(object.ptr());
    Py_VISIT(type.ptr());
  }
  for (const Function& f : functions_) {
    Py_VISIT(f.function.ptr());
    for (const nb::object& part : f.parts) Py_VISIT(part.ptr());
  }
  for (const SameContents& c : containers_) {
    const int stopped = c.visit(visit, arg);
    if (stopped != 0) return stopped;
  }
  return 0;
}

void SameObjects::clear() {
  const SameObjects going = std::move(*this);  // while they go, somebody may ask for what is here
}

void bind_watch(nb::module_& m) {
  nb::class_<SameObjects>(m, "SameObjects", nb::type_slots(collected_slots<SameObjects>()),
                          "Objects as they are now, to be compared by address later.")
      .def(
          "__init__",
          [](SameObjects* self, std::vector<nb::dict> tables, std::vector<std::pair<nb::object, nb::str>> entries,
             std::vector<nb::handle_t<Tensor>> tensors, std::vector<nb::object> cells,
             std::vector<std::pair<nb::type_object, nb::str>> classes, std::vector<nb::object> typed,
             std::vector<nb::object> functions, std::vector<nb::object> containers, nb::handle own) {
            new (self) SameObjects({std::move(tables), std::move(entries), std::move(tensors), std::move(cells),
                                    std::move(classes), std::move(typed), std::move(functions), std::move(containers)},
                                   own);
          },
          nb::kw_only(), nb::arg("tables") = nb::make_tuple(), nb::arg("entries") = nb::make_tuple(),
          nb::arg("tensors") = nb::make_tuple(), nb::arg("cells") = nb::make_tuple(),
          nb::arg("classes") = nb::make_tuple(), nb::arg("typed") = nb::make_tuple(),
          nb::arg("functions") = nb::make_tuple(), nb::arg("containers") = nb::make_tuple(),
          nb::arg("own") = nb::none())
      .def("hold", &SameObjects::hold, nb::arg("own") = nb::none(),
           "Whether all are the same objects, with the same memory. own: the dict of entries without one.");
}

}  // namespace sluice::python
