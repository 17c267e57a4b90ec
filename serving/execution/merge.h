#pragma once
// Texts of graphs, joined: inputs of one become values of another.
#include <map>
#include <set>
#include <string>
#include <vector>

namespace sluice::serving {

// A graph to be joined: where its inputs come from, and what its outputs are called, by the names of the whole.
struct GraphPart {
  std::string name;                            // in errors, and before the names of its variables
  std::string text;                            // as in a bundle's graph.txt
  std::map<std::string, std::string> inputs;   // its input: the whole's tensor
  std::map<std::string, std::string> outputs;  // its output: the whole's tensor
};

struct MergedGraph {
  std::string text;
  std::set<std::string> variables;  // "<number of the part>/<its name there>"
};

// Throws kInvalidArgument for tensors that nobody makes, or two; for types that differ; for parts that wait for each
// other. Throws kUnsupported for graphs that cannot be joined.
MergedGraph merge_graphs(const std::string& name, const std::vector<GraphPart>& parts,
                         const std::set<std::string>& inputs, const std::vector<std::string>& outputs);

}  // namespace sluice::serving
