#pragma once
// The executor inside a TraceScope: makes nodes, keeps track of what memory an eager run would share.
//
// Every eager block of memory that the graph may write is a Cell: the graph value that it holds now. A tensor is a base
// (the whole cell) or a view of one (view ops applied to it). Writing to a view puts the value back into the base by
// ordinary ops and moves the cell on; a view that was made before is computed anew when it is read next.
//
// Thread safety: none; one thread traces.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/extents.h"
#include "graph/routing.h"
#include "tensor/eager.h"
#include "tensor/trace.h"
#include "tensor/versions.h"

namespace sluice {

// A part of the trace that runs in its own way, a branch or the body of a loop, while it is traced: calls in it read
// what was made before through what bring() makes of that.
//
// Invariant: a value that is no node made since `first` belongs to the outside.
struct TraceRegion {
  explicit TraceRegion(const char* owner, const char* advice) : owner(owner), advice(advice) {}
  virtual ~TraceRegion() = default;
  // The values that the inside reads in place of `value`, one for each of the ways in which it runs. Called outside.
  virtual std::vector<Value> bring(const Value& value) = 0;
  // Is `value`, a constant, brought too?
  virtual bool brings_constant(const Value& value) const { return (void)value, false; }

  const char* const owner;     // for errors: "cond: a branch"
  const char* const advice;    // where it wants to write outside
  size_t current = 0;          // the way that is traced
  size_t first = 0;            // nodes made before
  uint64_t first_storage = 0;  // 0: not begun
  // A value that was brought, by whose handle and which value of the graph.
  struct Routed {
    Value from;
    graph::ValueId id;
    std::vector<Value> outputs;
  };
  std::map<std::pair<const ValueImpl*, graph::ValueId>, Routed> routed;
  std::unordered_set<graph::ValueId> copies;  // those outputs
};

struct TraceCell {
  graph::ValueId current = graph::kNoValue;
  // Whether it, or what is a copy of it because of its strides, was written to, and what these have done.
  bool written = false, strides_decide = false, strides_told = false;
  std::shared_ptr<TraceCell> copy_of = nullptr;
};

class TracedImpl final : public TensorImpl {
 public:
  // A base with memory of its own.
  TracedImpl(uint64_t trace, const TensorSpec& spec, DeviceId device, graph::ValueId id);
  // A view of `parent` (traced, or an eager variable) whose memory is `cell`.
  TracedImpl(uint64_t trace, std::shared_ptr<TraceCell> cell, const std::shared_ptr<TensorImpl>& parent, ViewStep step,
             const TensorSpec& spec, graph::ValueId id);
  // The same memory without history; `other` is traced, or an eager tensor over `cell`.
  TracedImpl(uint64_t trace, std::shared_ptr<TraceCell> cell, const TensorImpl& other, std::vector<ViewStep> steps,
             std::shared_ptr<TensorImpl> base);
  bool unshared() const override { return cell.use_count() == 1; }

  const uint64_t trace;  // number of the trace it belongs to
  std::shared_ptr<TraceCell> cell;
  // The graph value of a view, as of `id_version`.
  graph::ValueId id = graph::kNoValue;
  uint64_t id_version = 0;
};

class TraceExecutor final : public graph::GraphBuilder, public TensorExecutor, public Router {
 public:
  TraceExecutor(EagerExecutor& eager, std::string graph_name);

  std::vector<Value> call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override;
  void assign(const Value& target, const Value& source) override;
  Value detach(const Value& value) override;
  Value copy(const Value& value) override;
  Value in_graph_of(const Value& other, const Value& value) override;
  std::shared_ptr<const Provenance> origin() override;
  EagerExecutor& eager() override { return eager_; }
  std::vector<Value> routed(std::span<const Value> inputs) override;

  // From now on calls are part of `region`, inside of those begun before, until end_region(). `closed`: what was made
  // in it is not for the outside.
  void begin_region(TraceRegion& region, size_t current);
  void end_region(bool closed);
  // A value of the graph that stands for one of this type on that device, and that nothing computes.
  Value stand_in(const TensorType& type, const DeviceId& device);

  // Is it a value or a variable of the graph, rather than a constant.
  bool touches_graph(const Value& value) { return value.defined() && (value.impl()->traced() || variable_of(value)); }
  // Tells of how many micro-batches there is one such value; 0: of all. REQUIRES: touches_graph(value).
  int every(const Value& value) { return graph_.every(current_id(value)); }
  // The axes of a value that are as long as a step makes them. REQUIRES: touches_graph(value). Throws as Extents does.
  std::vector<graph::VaryingAxis> varying_axes(const Value& value);
  Value handle_of(graph::ValueId id);
  Value add_input(const std::string& name, const TensorType& type, const std::optional<Strides>& strides);
  void register_variable(const std::string& name, const Value& tensor);
  // The state of a random generator, which steps once per run, and a salt no other op of this graph has.
  std::pair<Value, int64_t> random_state(const Value& state);
  // An output that varies in length gets further outputs that tell how long it is (plan/extents.h).
  CapturedGraph finish(const std::vector<std::pair<std::string, Value>>& outputs);
  // Numbers of regions (Provenance), from 1.
  int next_region() { return ++last_region_; }
  // The graph as far as it came, of a trace that failed.
  CapturedGraph unfinished();
  // Gives tensors that outlive the trace their own gradients back. Idempotent.
  void restore_autograd();

 protected:
  graph::ValueId import_value(const Value& value) override;
  Value make_value(graph::ValueId id, DeviceId device) override;

 private:
  struct Variable {
    std::string name;
    Tensor tensor;
    std::shared_ptr<TraceCell> cell;
    int index = -1;  // in the graph, once it is used
    graph::ValueId initial = graph::kNoValue;
    graph::ValueId laid = graph::kNoValue;  // the same over several devices, where it is global
    bool random = false;
  };
  // Autograd data that tracing may change on tensors that outlive it.
  struct Kept {
    std::shared_ptr<ValueImpl> impl;
    std::shared_ptr<ValueImpl> grad;
    std::shared_ptr<GradNode> grad_fn;
    int output_index;
    bool requires_grad;
  };

  // Tells whether `id` was made outside of the innermost region.
  bool outside(graph::ValueId id) const;
  Value route(const Value& value);
  // Was it made in a region that has been closed?
  bool closed(graph::ValueId id) const;
  // Throws where `target` belongs to the outside of the innermost region.
  void check_write_in_region(const Value& target, bool constant);
  Variable* variable_of(const Value& value);
  // The cell behind a value that touches the graph.
  std::shared_ptr<TraceCell> cell_of(const Value& value);
  // How an eager tensor over a variable's memory is a view of it.
  std::vector<ViewStep> steps_from(const Variable& variable, const EagerImpl& impl) const;
  graph::ValueId current_id(const Value& value);
  graph::ValueId capture_constant(const Value& value);
  // From now on what was a constant is a value of the graph, which writes to it. REQUIRES: made while it is traced.
  void adopt(const Value& constant);
  // `id` as the tensor whose memory it is lies over devices.
  graph::ValueId lay(graph::ValueId id, const EagerImpl& impl);
  // A view is there as often as what it is a view of, wherever it is made.
  int rate_of_views(graph::ValueId base) const { return std::max(1, graph_.every(base)); }
  graph::ValueId apply_steps(graph::ValueId base, DeviceId device, const std::vector<ViewStep>& steps);
  Value handle(graph::ValueId id, DeviceId device) { return make_value(id, device); }
  void keep_autograd(const Value& value);
  void on_node(int index) override;
  // Stamps nodes made next with the scopes they are made in.
  void refresh_context();
  std::string take_name(const std::string& prefix);
  void add_variable(const std::string& name, const Value& tensor);
  void add_extents();
  void set_updates();
  CapturedGraph capture();

  EagerExecutor& eager_;
  graph::Graph graph_storage_;
  const uint64_t trace_;
  const uint64_t first_storage_ = Storage::next_number();  // of those made while it is traced
  std::vector<std::shared_ptr<TraceCell>> inputs_;
  std::unordered_map<const Storage*, std::unique_ptr<Variable>> variables_;
  std::vector<Variable*> used_;                      // in the graph's order
  std::map<std::string, graph::ValueId> constants_;  // by identity or, for single elements, by content
  std::vector<std::pair<std::string, Tensor>> constant_tensors_;
  TakenContents taken_;
  std::vector<Kept> kept_;
  BorrowedVersions versions_;
  std::vector<Value> captured_;  // keeps identities of captured tensors unique
  std::unordered_set<const Storage*> captured_storage_;
  std::set<std::string> names_;
  std::map<std::string, int> next_name_;  // by prefix
  int64_t next_salt_ = 0;
  int last_region_ = 0;
  std::shared_ptr<const Provenance> origin_;            // given out last
  std::vector<TraceRegion*> regions_;                   // being traced, innermost last
  std::vector<std::pair<size_t, size_t>> closed_ = {};  // nodes of closed regions
};

// The settings that the scopes of this thread give to nodes made now.
struct TraceContext {
  graph::Placement placement;
  int quota = 0;
  int every = 1;
  std::string module;
  int region = 0;
  CheckpointPolicy policy = CheckpointPolicy::kNothing;  // of the region
  std::function<SourceLocation()> source;
};
TraceContext& trace_context();

// Whether the values of a node in a region are kept all the same.
bool keeps(CheckpointPolicy policy, const graph::Graph& graph, const graph::Node& node);

}  // namespace sluice
