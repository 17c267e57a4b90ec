#pragma once
// The graphs of a model, checked and in an order in which they can run: the model's own, those in attributes, and those
// that functions of the model are.
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "onnx/call.h"
#include "onnx/table.h"

namespace sluice::onnx {

class Body;

struct Step {
  const format::NodeProto* node = nullptr;
  const Entry* entry = nullptr;    // null: a call of a function of the model
  const Body* function = nullptr;  // what is called
  int64_t version = 0;
  std::vector<std::string> done = {};  // names that nobody reads any more
};

class Body {
 public:
  const format::GraphProto* graph = nullptr;
  std::vector<Step> steps;
  std::vector<std::string> inputs, outputs;
  std::unordered_map<std::string, Tensor> constants;
  std::unordered_set<std::string> reads;  // names of graphs around it
};

// All bodies of a model, which must outlive them.
class Bodies {
 public:
  // Throws kValue or kUnsupported with the node's name: an unknown op or set of ops, a name that nothing makes or two
  // nodes make, a circle of nodes or of functions.
  Bodies(const format::ModelProto& model, const Folder& folder);

  const Body& main() const { return *main_; }
  const Body& of(const format::GraphProto& graph) const { return *by_graph_.at(&graph); }
  const std::map<std::string, int64_t>& opsets() const { return opsets_; }
  // Initializers of the main graph that are weights, in the file's order.
  const std::vector<std::pair<std::string, Tensor>>& parameters() const { return parameters_; }

 private:
  using Opsets = std::map<std::string, int64_t>;
  struct Within {
    const Opsets& opsets;
    const std::unordered_set<std::string>* outer;  // names of graphs around it
    int depth;
  };

  const Body* add(const format::GraphProto& graph, const Within& within, bool is_main = false);
  Step step_of(const format::NodeProto& node, const Within& within, std::unordered_set<std::string>& reads);
  const Body* function_of(const format::NodeProto& node, const format::FunctionProto& function, int depth);
  void read_constants(Body& body, const format::GraphProto& graph, bool is_main);
  void find_parameters(const Body& body);
  void note_uses(const Body& body, std::unordered_set<std::string>& weights,
                 std::unordered_set<std::string>& known) const;

  const format::ModelProto& model_;
  const Folder& folder_;
  Opsets opsets_;
  std::map<std::string, const format::FunctionProto*> functions_;
  std::vector<std::unique_ptr<Body>> bodies_;
  std::vector<std::unique_ptr<format::GraphProto>> made_;  // graphs of calls of functions
  std::vector<std::unique_ptr<Opsets>> opsets_of_functions_;
  std::unordered_map<const format::GraphProto*, const Body*> by_graph_;
  std::vector<const format::FunctionProto*> calling_;
  std::vector<std::pair<std::string, Tensor>> parameters_;
  const Body* main_ = nullptr;
  int64_t nodes_ = 0;
};

std::string where_of(const format::NodeProto& node);

}  // namespace sluice::onnx
