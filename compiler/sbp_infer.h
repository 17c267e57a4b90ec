#pragma once
// Infers where every value of a logical graph lies: from what to_global says, greedily along the program.
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/device_mesh.h"
#include "graph/graph.h"

namespace sluice::compiler {

// The place of a logical value: over the devices of a mesh, or not on one.
struct Lay {
  static constexpr int kOff = -1;   // on one device, outside the meshes
  static constexpr int kFree = -2;  // depends on nothing: made wherever it is read
  int mesh = kOff;
  NdSbp sbp;
  bool on_mesh() const { return mesh >= 0; }
  bool operator==(const Lay&) const = default;
};

// How a node on a mesh is split.
struct SplitCall {
  int mesh = Lay::kOff;
  std::vector<SbpRow> rows;  // one per axis of the mesh; each with one entry per input and output of the node
  NdSbp input(size_t i) const;
  NdSbp output(size_t o) const;
};

struct SbpPlan {
  graph::Graph graph;              // the logical graph; ops that split better as their decomposition are that
  std::vector<DeviceMesh> meshes;  // named by Lay::mesh
  std::vector<Lay> values;         // per value of the graph
  std::vector<Lay> source_values;  // per value of the graph as it was given
  std::vector<SplitCall> calls;    // per node
  double bytes = 0;                // that conversions move, as priced
};

// Does any node ask for several devices.
bool is_global(const graph::Graph& graph);

// Bytes that travel when a value of `bytes` bytes that lies `from` on n devices comes to lie `to` on the same ones, or,
// when it `moves`, on m others.
double boxing_bytes(double bytes, const Sbp& from, int n, const Sbp& to, int m, bool moves);

// The type of the part of device `i` of a mesh, and of part `i` of `n`. Throws kValue when there are fewer elements
// than parts.
TensorType local_type(const TensorType& type, const MeshShape& mesh, const NdSbp& sbp, int i);
TensorType local_type(const TensorType& type, const Sbp& sbp, int n, int i);

// A call as a whole: what its inputs and outputs are. Absent inputs have a default type.
struct WholeCall {
  const OpDef& op;
  const Attrs& attrs;
  Types inputs;
  std::span<const bool> present;
  Types outputs;
};
// Attributes of shard `i` of `n`. Throws when the op does not make its part of the outputs from its part of the inputs.
Attrs local_attrs(const WholeCall& call, const SbpRow& row, int n, int i);
// The same on a mesh: the row of an axis is of what the axes before it have left.
Attrs local_attrs(const WholeCall& call, const MeshShape& mesh, const std::vector<SbpRow>& rows, int i);
// Does every shard make its part.
bool can_split(const WholeCall& call, const SbpRow& row, int n);

// A call as one shard sees it, or one of several axes after the axes before.
struct LocalCall {
  Attrs attrs;
  std::vector<TensorType> inputs, outputs;
  bool operator==(const LocalCall&) const = default;
};
// Parts that stand for all: what a part's call is depends on its sizes alone, of which there are few.
std::vector<int> different_parts(const WholeCall& call, const SbpRow& row, int n);
// Of shard `i` of `n`. Throws as local_attrs().
LocalCall local_call(const WholeCall& call, const SbpRow& row, int n, int i);

// For each node, and along each axis of its mesh in turn, the op's row that moves the fewest bytes, then the one that
// converts the fewest operands, then the first; or the op's decomposition, where that moves fewer. What moves along an
// axis is priced for this axis alone. A variable that is read on one mesh alone lies there, as to_global says or as its
// first reader wants it. Throws kValue naming the user's line where operands lie on different meshes, or a variable
// would rest as partial sums.
//
// In a job of several ranks (`components` given), what is there a component lies so; other variables are each rank's.
using Components = std::map<std::string, GlobalPlacement>;
// The choices that are made beforehand (compiler/sbp_search.h): how variables lie, by name, and what calls of to_global
// ask for, by their place among the nodes.
struct SbpChoices {
  std::map<std::string, NdSbp> variables;
  std::map<int, NdSbp> moves;
};
SbpPlan infer_sbp(graph::Graph graph, const Components* components = nullptr, const SbpChoices* choices = nullptr);

}  // namespace sluice::compiler
