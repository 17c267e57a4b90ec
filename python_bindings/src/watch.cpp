// Objects that a traced graph depends on: whether all are the same ones still. Asked at each call, so it only compares
// addresses; what differs by address may still be equal, which Python decides (sluice/nn/graph/watch.py).
#include "bindings.h"

namespace sluice::python {
namespace {

class SameObjects {
 public:
  // tables: dicts, all of whose values are meant; entries: (dict, key), which may be absent; tensors: their memory and
  // requires_grad.
  SameObjects(const std::vector<nb::dict>& tables, const std::vector<std::pair<nb::dict, nb::str>>& entries,
              const std::vector<nb::handle_t<Tensor>>& tensors) {
    for (const nb::dict& table : tables) tables_.push_back({table, values_of(table)});
    for (const auto& [table, key] : entries)
      entries_.push_back({table, key, nb::borrow(PyDict_GetItemWithError(table.ptr(), key.ptr()))});
    for (const nb::handle_t<Tensor>& tensor : tensors) {
      const Tensor& t = *nb::inst_ptr<Tensor>(tensor);
      tensors_.push_back({nb::borrow(tensor), t, t.requires_grad()});
    }
  }

  bool hold() const {
    for (const Table& t : tables_)
      if (!holds(t)) return false;
    for (const Entry& e : entries_)
      if (PyDict_GetItemWithError(e.table.ptr(), e.key.ptr()) != e.value.ptr()) return false;
    for (const Memory& m : tensors_) {
      const Tensor& t = *nb::inst_ptr<Tensor>(m.tensor);
      if (t.impl() != m.memory.impl() || t.requires_grad() != m.requires_grad) return false;
    }
    return true;
  }

 private:
  struct Table {
    nb::dict table;
    std::vector<nb::object> values;
  };
  struct Entry {
    nb::dict table;
    nb::str key;
    nb::object value;  // null: there is none
  };
  struct Memory {
    nb::object tensor;
    Tensor memory;  // kept, so that no other can have its address
    bool requires_grad;
  };

  static std::vector<nb::object> values_of(const nb::dict& table) {
    std::vector<nb::object> values;
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(table.ptr(), &at, &key, &value);) values.push_back(nb::borrow(value));
    return values;
  }
  static bool holds(const Table& t) {
    if (static_cast<size_t>(PyDict_Size(t.table.ptr())) != t.values.size()) return false;
    PyObject *key = nullptr, *value = nullptr;
    size_t i = 0;
    for (Py_ssize_t at = 0; PyDict_Next(t.table.ptr(), &at, &key, &value);)
      if (value != t.values[i++].ptr()) return false;
    return true;
  }

  std::vector<Table> tables_;
  std::vector<Entry> entries_;
  std::vector<Memory> tensors_;
};

}  // namespace

void bind_watch(nb::module_& m) {
  nb::class_<SameObjects>(m, "SameObjects", "Objects as they are now, to be compared by address later.")
      .def(nb::init<const std::vector<nb::dict>&, const std::vector<std::pair<nb::dict, nb::str>>&,
                    const std::vector<nb::handle_t<Tensor>>&>(),
           nb::arg("tables"), nb::arg("entries"), nb::arg("tensors"))
      .def("hold", &SameObjects::hold, "Whether all are the same objects, with the same memory.");
}

}  // namespace sluice::python
