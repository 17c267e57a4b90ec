#pragma once
// The executor inside a TraceScope: makes nodes, keeps track of what memory an eager run would share (traced_impl.h).
// Its parts own what they know: TraceVariables, CapturedConstants, TraceRegions, KeptAutograd, GraphNames.
//
// Thread safety: none; one thread traces.
#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/extents.h"
#include "graph/routing.h"
#include "tensor/captured_constants.h"
#include "tensor/eager.h"
#include "tensor/kept_autograd.h"
#include "tensor/trace.h"
#include "tensor/trace_regions.h"
#include "tensor/trace_variables.h"
#include "tensor/traced_impl.h"

namespace sluice {

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
  // Is it a tensor that was made while tracing and then written to, so that its content is a value of the graph.
  bool was_adopted(const Value& value);
  // Tells of how many micro-batches there is one such value; 0: of all. REQUIRES: touches_graph(value).
  int every(const Value& value) { return graph_.every(current_id(value)); }
  // The axes of a value that are as long as a step makes them. REQUIRES: touches_graph(value). Throws as Extents does.
  std::vector<graph::VaryingAxis> varying_axes(const Value& value);
  Value handle_of(graph::ValueId id);
  // Computes now what a value of the graph is in every step: it follows from constants, and from buffers that the
  // graph has not written to. From now on the graph is for what these hold. Undefined where it follows from something
  // else.
  Value settled(const Value& value);
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
  void restore_autograd() { autograd_.restore(); }

 protected:
  graph::ValueId import_value(const Value& value) override;
  Value make_value(graph::ValueId id, DeviceId device) override;

 private:
  Value route(const Value& value);
  // Throws where `target` belongs to the outside of the innermost region.
  void check_write_in_region(const Value& target, bool constant);
  // Null where it is none; else it is in the graph from now on.
  TraceVariable* variable_of(const Value& value);
  // The cell behind a value that touches the graph.
  std::shared_ptr<TraceCell> cell_of(const Value& value);
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
  void on_node(int index) override;
  // Stamps nodes made next with the scopes they are made in.
  void refresh_context();
  void add_variable(const std::string& name, const Value& tensor);
  void add_extents();
  Value content_of(int index, std::set<TraceVariable*>& read);
  void check_settled();
  void set_updates();
  CapturedGraph capture();

  EagerExecutor& eager_;
  graph::Graph graph_storage_;
  const uint64_t trace_;
  const uint64_t first_storage_ = Storage::next_number();  // of those made while it is traced
  std::vector<std::shared_ptr<TraceCell>> inputs_;
  TraceVariables variables_;
  CapturedConstants constants_;
  KeptAutograd autograd_;
  GraphNames names_;
  TraceRegions regions_{graph_storage_};
  int64_t next_salt_ = 0;
  int last_region_ = 0;
  std::shared_ptr<const Provenance> origin_;  // given out last
};

// The settings that the scopes of this thread give to nodes made now.
struct TraceContext {
  ScopedSetting<Placing> placing;
  ScopedSetting<int> every{1};
  ScopedSetting<std::string> module;
  ScopedSetting<Recomputing> recomputing;
  std::function<SourceLocation()> source;
};
TraceContext& trace_context();

// Whether the values of a node in a region are kept all the same.
bool keeps(CheckpointPolicy policy, const graph::Graph& graph, const graph::Node& node);

}  // namespace sluice
