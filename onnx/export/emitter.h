#pragma once
// Graphs are written: each op by its entry, or by its parts; branches and loops as nodes that hold graphs.
#include <functional>
#include <string>
#include <vector>

#include "onnx/export/branching.h"
#include "onnx/export/emission.h"

namespace sluice::onnx::exporting {

// A name without the prefix that is the program's own.
std::string shown(const std::string& name, const std::string& prefix);
// The user's line, the op, its module.
std::string where_of(const Provenance& p, const OpDef& op, const std::string& prefix);

using Graphs = std::vector<const graph::Graph*>;  // the same one at each traced size
using Names = std::vector<std::string>;

// Writes graphs, one node after the other; the same node of all traces at once.
class Emitter {
 public:
  Emitter(Exporter& to, std::string prefix, bool branches) : to_(to), prefix_(std::move(prefix)), branches_(branches) {}

  // `names`: of the values of the graphs that are there already. `outer`: where its nodes come from, if it is a part.
  void run(const Graphs& graphs, Names& names, const Provenance* outer, int depth);

 private:
  // The graphs that are being written, and what is known of their nodes.
  struct Walk {
    const Graphs& graphs;
    Names& names;
    const Provenance* outer;
    int depth;
    std::vector<bool> used;
    const Branching* branching;  // null: case and esac are written as other ops

    const graph::Graph& first() const { return *graphs.front(); }
    const Provenance& provenance(size_t node) const { return outer ? *outer : first().nodes()[node]; }
    std::string& name(graph::ValueId value) { return names[static_cast<size_t>(value)]; }
    std::vector<TensorType> types(graph::ValueId value) const;  // by trace
  };
  struct Choice;

  void write(Walk& walk, const std::vector<size_t>& nodes, const BranchSet& within);
  void write_node(Walk& walk, size_t n);
  void write_choice(const Choice& choice);
  Names chosen(const Choice& choice, int64_t last);
  Names taken(const Choice& choice, int64_t branch);

  Names emit(const Emission& e, const Provenance& provenance, int depth);
  Names decomposed(const Emission& e, const Provenance& provenance, int depth);
  Names scan(const Emission& e, const Provenance& provenance, int depth);
  Names while_loop(const Emission& e, const Provenance& provenance, int depth);
  // A turn of a loop gives these for the operands that have these names; types[trace] are those of a turn.
  std::vector<Port> turn(const Emission& e, const std::vector<std::vector<TensorType>>& types, const Names& operands,
                         const Provenance& provenance, int depth);

  Exporter& to_;
  const std::string prefix_;
  const bool branches_;
};

}  // namespace sluice::onnx::exporting
