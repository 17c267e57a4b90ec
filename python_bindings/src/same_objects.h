#pragma once
// Objects that a traced graph depends on: whether all are the same ones still. Asked at each call, so it only compares
// addresses; what differs by address may still be equal, which Python decides (sluice/nn/graph/watch.py).
#include <utility>
#include <vector>

#include "bindings.h"

namespace sluice::python {

class SameObjects {
 public:
  // tables: dicts, all of whose values are meant; entries: (dict, key), which may be absent; tensors: their memory and
  // requires_grad; cells: what closures hold, which may be nothing.
  SameObjects(const std::vector<nb::dict>& tables, const std::vector<std::pair<nb::dict, nb::str>>& entries,
              const std::vector<nb::handle_t<Tensor>>& tensors, const std::vector<nb::object>& cells);
  bool hold() const;
  // Of the garbage collector.
  int visit(visitproc visit, void* arg) const;
  void clear();

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
  struct Cell {
    nb::object cell, content;  // content null: there is none
  };
  static bool holds(const Table& t);

  std::vector<Table> tables_;
  std::vector<Entry> entries_;
  std::vector<Memory> tensors_;
  std::vector<Cell> cells_;
};

}  // namespace sluice::python
