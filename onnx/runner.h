#pragma once
// Runs the graphs of a model, one node after the other.
#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/body.h"

namespace sluice::onnx {

// Values by name, and those of the graph around it.
struct Scope {
  std::unordered_map<std::string, Item> values;
  const Scope* outer = nullptr;
  const Item* find(const std::string& name) const;
};

class Runner {
 public:
  Runner(const Bodies& bodies, const Folder& folder, Generator& generator)
      : bodies_(bodies), folder_(folder), generator_(generator) {}
  // Gives the outputs. `scope` has the inputs.
  std::vector<Item> run(const Body& body, Scope& scope);
  // Runs a graph that is an attribute of the node under way, with these inputs.
  std::vector<Item> run_inner(const format::GraphProto& graph, std::vector<Item> inputs, const std::string& where);

  const Folder& folder() const { return folder_; }
  Generator& generator() const { return generator_; }

 private:
  void run_step(const Step& step, Scope& scope);
  Items call(const Step& step, Scope& scope);

  const Bodies& bodies_;
  const Folder& folder_;
  Generator& generator_;
  const Scope* current_ = nullptr;
};

}  // namespace sluice::onnx
