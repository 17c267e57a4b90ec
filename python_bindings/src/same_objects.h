#pragma once
// Objects that a traced graph depends on: whether all are the same ones still. Asked at each call, so it only compares
// addresses; what differs by address may still be equal, which Python decides (sluice/nn/graph/watch.py).
#include <array>
#include <utility>
#include <vector>

#include "bindings.h"
#include "same_contents.h"

namespace sluice::python {

struct Watched {
  std::vector<nb::dict> tables;                         // all of whose values are meant
  std::vector<std::pair<nb::object, nb::str>> entries;  // (dict, key), which may be absent; None: the dict of hold()
  std::vector<nb::handle_t<Tensor>> tensors;            // their memory and requires_grad
  std::vector<nb::object> cells;                        // what closures hold, which may be nothing
  std::vector<std::pair<nb::type_object, nb::str>> classes;  // what a class or a base has under a name, if anything
  std::vector<nb::object> typed;                             // objects that stay of their class
  std::vector<nb::object> functions;                         // of Python: their code and defaults
  std::vector<nb::object> containers;                        // what is in them
};

class SameObjects {
 public:
  // own: the dict of those entries that have none, which is not kept.
  SameObjects(const Watched& watched, nb::handle own);
  bool hold(nb::handle own = {}) const;
  // For the garbage collector.
  int visit(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Table {
    nb::dict table;
    std::vector<nb::object> values;
  };
  struct Entry {
    nb::object table;  // null: `own`
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
  struct Attribute {
    nb::type_object owner;
    nb::str name;
    nb::object value;  // null: there is none
  };
  struct Function {
    nb::object function;
    std::array<nb::object, 3> parts;  // null: it has no such defaults
  };
  static bool holds(const Table& t);

  std::vector<Table> tables_;
  std::vector<Entry> entries_;
  std::vector<Memory> tensors_;
  std::vector<Cell> cells_;
  std::vector<Attribute> attributes_;
  std::vector<Function> functions_;
  std::vector<SameContents> containers_;
  std::vector<std::pair<nb::object, nb::object>> typed_;  // with its class
};

}  // namespace sluice::python
