#pragma once
// The state of lowering; see lower.cpp.
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/lowered.h"

namespace sluice::compiler {

// What the graph says of its variables, given the order in which nodes run.
struct VariableFacts {
  VariableFacts(const graph::Graph& graph, const std::vector<int>& order);
  // `ranks`: whose each variable is. Its home is a stream of that rank.
  void find_homes(Placer& placer, const std::vector<int>& ranks);
  bool updated(int variable) const { return updated_[variable]; }

  std::vector<int> position;         // per node: place in the order
  std::vector<graph::ValueId> root;  // per value: what it is, at the bottom, a view of
  std::vector<int> last_read;        // per variable: last position at which its old content is read, or -1
  std::vector<int> home;             // per variable: the stream that writes it, else the first that reads it
  std::vector<bool> read_elsewhere;  // per variable: its old content is read on other streams than its home
  std::vector<int> update_of;        // per value: the variable whose new content it is, or -1
  std::vector<bool> needs_snapshot;  // per value: a new content that is the old content of an updated variable
  std::vector<std::vector<int>> updates_after;  // [p + 1]: updates that may be written after position p

 private:
  int variable_of(graph::ValueId value) const;
  const graph::Graph& graph_;
  const std::vector<int>& order_;
  std::vector<bool> updated_;
};

// The same elements in another order of memory.
TensorSpec with_layout(const TensorSpec& spec, plan::Layout layout);

class Lowering {
 public:
  Lowering(const graph::Graph& graph, const std::vector<int>& order, const plan::Target& target,
           const CompileOptions& options, const Partition& partition);
  Lowered run();

 private:
  void make_inputs_and_variables();
  void place_ports(int rank);
  void pin_what_devices_copy();
  void lower_view(int node);
  void lower_kernel(int node);
  void lower_collective(int node);
  void lower_pack(int node);
  void defined(graph::ValueId value);
  void finish_updates(int position);

  // A kernel's answers for one query; equal queries are asked once.
  struct Answers {
    uint64_t workspace_bytes = 0;
    double cost_ns = 0;
    std::vector<plan::InPlacePair> in_place;
  };
  const Answers& ask(const plan::KernelQuery& query);
  Operand fetch(graph::ValueId value, int stream, plan::Layout layout);
  Operand transfer(graph::ValueId value, int stream);
  Operand snapshot(graph::ValueId value, const Operand& from, int stream);
  bool belongs_to_other_stream(const Operand& operand, int stream) const;
  Operand add_copy(const Operand& from, TensorSpec spec, int stream, int space, const Operand* into = nullptr);
  TensorSpec output_spec(const TensorSpec& spec, plan::Layout layout, const std::vector<TensorSpec>& inputs) const;
  int variable_to_write(int node, int output, const TensorSpec& spec, const Task& task);
  // A stream of `rank` that computes in host memory: the value's own where that does.
  int host_side(graph::ValueId value, int rank);
  int rank_of(const Operand& operand) const { return placer_.spaces[out_.stores[operand.store].space].device.rank; }
  // How often what is copied of a store is there.
  int every_of(const Store& store) const;
  bool same_in_all(graph::ValueId value) const;
  // Not made more often than the node being lowered runs.
  bool is_there(const Operand& operand) const { return every_of(out_.stores[operand.store]) >= every_; }
  // All of a store that crosses from stream to stream, and so from rank to rank.
  bool travels(const Operand& operand) const;
  int add_store(Store store);
  int add_task(Task task);
  std::string unique_name(const std::string& base);
  void stamp(const graph::Node& node);

  const graph::Graph& graph_;
  const std::vector<int>& order_;
  const plan::Target& target_;
  const CompileOptions& options_;
  const Partition& partition_;
  const int batches_;  // micro-batches of a step
  Placer placer_;
  VariableFacts facts_;
  std::vector<std::vector<Operand>> where_;   // per value: everywhere it lies, the original first
  std::vector<std::vector<int>> outputs_of_;  // per value: graph outputs that are it
  std::unordered_map<std::string, int> names_;
  std::unordered_map<std::string, Answers> answers_;
  Lowered out_;
  SourceLocation source_;  // of the node being lowered, for the copies it needs
  std::string module_;
  int every_ = 1;
};

}  // namespace sluice::compiler
