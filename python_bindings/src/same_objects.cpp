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

}  // namespace

SameObjects::SameObjects(const std::vector<nb::dict>& tables, const std::vector<std::pair<nb::dict, nb::str>>& entries,
                         const std::vector<nb::handle_t<Tensor>>& tensors, const std::vector<nb::object>& cells) {
  for (const nb::dict& table : tables) tables_.push_back({table, values_of(table)});
  for (const auto& [table, key] : entries)
    entries_.push_back({table, key, nb::borrow(PyDict_GetItemWithError(table.ptr(), key.ptr()))});
  for (const nb::handle_t<Tensor>& tensor : tensors) {
    const Tensor& t = *nb::inst_ptr<Tensor>(tensor);
    tensors_.push_back({nb::borrow(tensor), t, t.requires_grad()});
  }
  for (const nb::object& cell : cells) cells_.push_back({cell, nb::borrow(PyCell_GET(cell.ptr()))});
}

bool SameObjects::hold() const {
  for (const Table& t : tables_)
    if (!holds(t)) return false;
  for (const Entry& e : entries_)
    if (PyDict_GetItemWithError(e.table.ptr(), e.key.ptr()) != e.value.ptr()) return false;
  for (const Memory& m : tensors_) {
    const Tensor& t = *nb::inst_ptr<Tensor>(m.tensor);
    if (t.impl() != m.memory.impl() || t.requires_grad() != m.requires_grad) return false;
  }
  for (const Cell& c : cells_)
    if (PyCell_GET(c.cell.ptr()) != c.content.ptr()) return false;
  return true;
}

bool SameObjects::holds(const Table& t) {
  if (static_cast<size_t>(PyDict_Size(t.table.ptr())) != t.values.size()) return false;
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
  return 0;
}

void SameObjects::clear() {
  const SameObjects going = std::move(*this);  // while they go, somebody may ask for what is here
}

void bind_watch(nb::module_& m) {
  nb::class_<SameObjects>(m, "SameObjects", nb::type_slots(collected_slots<SameObjects>()),
                          "Objects as they are now, to be compared by address later.")
      .def(nb::init<const std::vector<nb::dict>&, const std::vector<std::pair<nb::dict, nb::str>>&,
                    const std::vector<nb::handle_t<Tensor>>&, const std::vector<nb::object>&>(),
           nb::arg("tables"), nb::arg("entries"), nb::arg("tensors"), nb::arg("cells") = std::vector<nb::object>())
      .def("hold", &SameObjects::hold, "Whether all are the same objects, with the same memory.");
}

}  // namespace sluice::python
