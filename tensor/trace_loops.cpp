// Tracing the bodies of loops: the nodes that a body makes are copied into an attribute, and are dead in the graph.
#include <algorithm>

#include "graph/autodiff/saved_hooks.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/loops.h"
#include "graph/ops/shaping.h"
#include "graph/tape.h"
#include "tensor/loop_branches.h"
#include "tensor/loop_extraction.h"
#include "tensor/loops.h"
#include "tensor/trace_executor.h"

namespace sluice {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;

// The inside reads stand-ins, so that its history ends there; the loop itself reads what they stand for.
struct LoopRegion final : TraceRegion {
  explicit LoopRegion(TraceExecutor& trace)
      : TraceRegion("loop: its body", "make it a state of the loop, or return its new value"), trace(trace) {}

  std::vector<Value> bring(const Value& value) override {
    outside.push_back(value);
    inside.push_back(trace.stand_in(value.type(), value.device()));
    if (value.requires_grad()) autograd_meta(inside.back()).requires_grad = true;
    return {inside.back()};
  }
  bool brings_constant(const Value& value) const override { return value.requires_grad(); }

  TraceExecutor& trace;
  std::vector<Value> outside, inside;  // what every turn reads, and what stands for it
};

class RegionScope {
 public:
  explicit RegionScope(LoopRegion& region) : trace_(region.trace) { trace_.begin_region(region, 0); }
  ~RegionScope() { trace_.end_region(true); }
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

 private:
  TraceExecutor& trace_;
};

bool requires_grad(const Value& value) { return value.requires_grad(); }

class LoopTrace {
 public:
  LoopTrace(TraceExecutor& trace, std::span<const Value> states, std::span<const Value> rows, int64_t length,
            bool stacks)
      : trace_(trace),
        graph_(trace.graph()),
        region_(trace),
        states_(states),
        rows_(rows),
        length_(length),
        stacks_(stacks) {}

  // Traces one turn and, with `record`, the way of gradients through it.
  void run(const LoopBody& body, bool record) {
    const RegionScope scope(region_);
    const GradMode mode(record);
    const SavedHooksScope as_they_are(nullptr);  // what a turn saves is the loop's own business
    for (const Value& state : states_)
      taken_.push_back(stand_in(state.type(), state.device(), record && is_differentiable(state.dtype())));
    for (const Value& row : rows_) {
      TensorType type = row.type();
      SLUICE_CHECK(type.shape.rank() > 0 && type.shape[0] == length_,
                   "scan: {} is taken apart in {} turns; its first axis must be as long", type.str(), length_);
      type.shape.erase(0);
      taken_.push_back(stand_in(type, row.device(), record && row.requires_grad()));
    }
    taken_ids_ = ids(taken_);
    // Not to be written in place: rows, and states that may be stacked as they were.
    region_.copies.insert(taken_ids_.begin() + (stacks_ ? 0 : static_cast<int64_t>(states_.size())), taken_ids_.end());
    const int checkpoint = trace_context().recomputing.now().region;
    given_ = trace_.routed(body(taken_));
    for (const Value& value : given_) given_ids_.push_back(trace_.id(value));
    const size_t end = graph_.nodes().size();
    for (size_t i = region_.first; i < end; ++i) recomputes_ |= graph_.nodes()[i].region != checkpoint;
    keeps_ = [this, end, checkpoint](const Node& node) {
      const ValueId value = node.outputs[0];
      if (static_cast<size_t>(graph_.values()[value].index) >= end) return false;
      const auto states = taken_ids_.begin() + static_cast<int64_t>(states_.size());
      const bool state = std::find(taken_ids_.begin(), states, value) != states;
      return state || (!node.inputs.empty() && node.op->view == nullptr && node.region == checkpoint);
    };
    const auto any = [](std::span<const Value> values) {
      return std::any_of(values.begin(), values.end(), requires_grad);
    };
    differentiable_ = record && any(given_) && (any(states_) || any(rows_) || any(region_.outside));
    if (differentiable_) trace_backward();
    extract();
  }

  // The values that the loop is called with.
  const std::vector<Value>& inputs() const { return inputs_; }
  bool differentiable() const { return differentiable_; }
  size_t num_given() const { return given_.size(); }
  size_t num_saved() const { return saved_; }
  AttrGraph take_body() { return std::move(body_); }
  AttrGraph take_backward() { return std::move(backward_); }
  const Ints& seeds() const { return seeds_; }
  const Ints& wants() const { return wants_; }
  const Ints& products() const { return products_; }

 private:
  // The row that the loop backwards reads of a saved value, and the output of the loop's body that this value is. One
  // that a branch makes is void in the turns that do not take it: it leaves the branch, and is void again where it is
  // read.
  struct Saved {
    ValueId output, row;
  };
  std::vector<Saved> save(Extraction& backward) {
    BranchPaths paths(graph_, region_.first);
    std::vector<Saved> saved;
    const GradMode off(false);
    for (size_t i = 0; i < backward.kept().size(); ++i) {  // to read a branch's value may take another: its index
      const ValueId value = backward.kept()[i];
      const std::vector<BranchTaken> path = paths.of(value);
      if (path.empty()) {
        saved.push_back({value, value});
        continue;
      }
      const Value made = trace_.handle_of(value), row = stand_in(made);
      saved.push_back({trace_.id(out_of(trace_, path, made)), trace_.id(row)});
      backward.stop_at(saved.back().row);
      backward.read_instead(value, trace_.id(into(trace_, path, row)), keeps_);
    }
    return saved;
  }

  // Makes the nested graphs.
  void extract() {
    const std::vector<ValueId>& taken = taken_ids_;
    const std::vector<ValueId> brought = ids(region_.inside);
    Extraction forward(graph_, region_.first), backward(graph_, region_.first);
    const std::vector<ValueId> gradients = ids(seeded_), sums = ids(backward_states_), wanted = ids(backward_given_);
    const std::span<const ValueId> rows = std::span(taken).subspan(states_.size());
    for (const std::span<const ValueId> values : {rows, std::span<const ValueId>(brought)})
      for (const ValueId value : values) backward.stop_at(value);
    for (const std::vector<ValueId>* values : {&gradients, &sums})
      for (const ValueId value : *values) backward.stop_at(value);
    backward.need(wanted, keeps_);
    const std::vector<Saved> saved = save(backward);
    saved_ = saved.size();

    std::vector<ValueId> outputs = given_ids_;
    for (const Saved& value : saved) outputs.push_back(value.output);
    for (const std::vector<ValueId>* values : {&taken, &brought})
      for (const ValueId value : *values) forward.stop_at(value);
    forward.need(outputs, [](const Node&) { return false; });
    std::vector<ValueId> constants = forward.outside();
    for (const ValueId value : backward.outside())
      if (std::find(constants.begin(), constants.end(), value) == constants.end()) constants.push_back(value);

    forward.take(taken);
    forward.take(brought);
    forward.take(constants);
    body_ = forward.finish(outputs);
    if (differentiable_) {
      backward.take(sums);
      backward.take(gradients);
      for (const Saved& value : saved) backward.take(value.row);
      backward.take(rows);
      backward.take(brought);
      backward.take(constants);
      backward_ = backward.finish(wanted);
    }
    for (const std::span<const Value> values : {states_, rows_, std::span<const Value>(region_.outside)})
      inputs_.insert(inputs_.end(), values.begin(), values.end());
    for (const ValueId value : constants) inputs_.push_back(trace_.handle_of(value));
  }

  Value stand_in(const TensorType& type, const DeviceId& device, bool differentiable) {
    Value value = trace_.stand_in(type, device);
    if (differentiable) autograd_meta(value).requires_grad = true;
    return value;
  }
  Value stand_in(const Value& like) { return stand_in(like.type(), like.device(), false); }

  std::vector<ValueId> ids(std::span<const Value> values) {
    std::vector<ValueId> found;
    for (const Value& value : values) found.push_back(trace_.id(value));
    return found;
  }

  // The loop backwards is one as op scan has it: states are the gradients of states and the sums of those of what every
  // turn reads.
  void trace_backward() {
    const size_t states = states_.size();
    std::vector<Value> outputs, seeds, inputs;
    std::vector<size_t> of;  // what each of `inputs` is, as an input of the loop
    for (size_t i = 0; i < given_.size(); ++i) {
      const bool state = i < states;
      if (state ? !taken_[i].requires_grad() : !given_[i].requires_grad()) continue;
      Value seed = stand_in(given_[i]);
      if (given_[i].requires_grad()) {
        outputs.push_back(given_[i]);
        seeds.push_back(seed);
      }
      if (!state) seeds_.push_back(static_cast<int64_t>(i));
      (state ? backward_states_ : seeded_).push_back(std::move(seed));
    }
    const auto add_inputs = [&](const std::vector<Value>& values, size_t first) {
      for (size_t i = 0; i < values.size(); ++i) {
        if (!values[i].requires_grad()) continue;
        inputs.push_back(values[i]);
        of.push_back(first + i);
      }
    };
    add_inputs(taken_, 0);
    add_inputs(region_.inside, taken_.size());
    BackwardOptions options;
    options.allow_unused = true;
    std::vector<Value> grads = grad(outputs, inputs, seeds, options), of_rows, factors;
    Ints of_factors;  // inputs whose gradients have factors
    const GradMode off(false);
    for (size_t k = 0; k < inputs.size(); ++k) {
      const bool every_step = of[k] >= taken_.size();
      if (every_step && !grads[k].defined()) continue;
      if (every_step && !recomputes_ && add_factors(grads[k], factors)) {
        of_factors.push_back(static_cast<int64_t>(of[k]));
        continue;
      }
      wants_.push_back(static_cast<int64_t>(of[k]));
      if (every_step) {
        backward_states_.push_back(stand_in(inputs[k]));
        grads[k] = ops::add(backward_states_.back(), grads[k]);
      } else if (!grads[k].defined()) {
        grads[k] = ops::zeros(inputs[k].shape(), inputs[k].dtype());
      }
      const bool row = of[k] >= states && !every_step;
      (row ? of_rows : backward_given_).push_back(grads[k]);
    }
    const auto index_of = [&](const Value& factor) {
      const auto same = [&](const Value& row) { return trace_.id(row) == trace_.id(factor); };
      const auto at = std::find_if(of_rows.begin(), of_rows.end(), same);
      const auto index = at - of_rows.begin();
      if (at == of_rows.end()) of_rows.push_back(factor);
      return static_cast<int64_t>(index);
    };
    for (size_t k = 0; k < of_factors.size(); ++k)
      for (const int64_t index : {of_factors[k], index_of(factors[2 * k]), index_of(factors[2 * k + 1])})
        products_.push_back(index);
    backward_given_.insert(backward_given_.end(), of_rows.begin(), of_rows.end());
  }

  // A gradient a^T b is kept as its factors: one product of the rows of all turns is faster than a sum of as many.
  bool add_factors(const Value& grad, std::vector<Value>& factors) {
    const graph::ValueInfo& made = graph_.values()[trace_.id(grad)];
    const OpDef& matmul = builtin_ops().get("matmul");
    if (made.kind != ValueKind::kNode || graph_.nodes()[made.index].op != &matmul) return false;
    const Node node = graph_.nodes()[made.index];
    const Value a = trace_.handle_of(node.inputs[0]), b = trace_.handle_of(node.inputs[1]);
    if (a.rank() != 2 || b.rank() != 2) return false;
    factors.push_back(attr<bool>(node.attrs, 0) ? a : ops::transpose(a, 0, 1));
    factors.push_back(attr<bool>(node.attrs, 1) ? ops::transpose(b, 0, 1) : b);
    return true;
  }

  TraceExecutor& trace_;
  const Graph& graph_;
  LoopRegion region_;
  const std::span<const Value> states_, rows_;
  const int64_t length_;
  const bool stacks_;
  std::vector<Value> taken_, given_;  // inside
  std::vector<ValueId> taken_ids_, given_ids_;
  std::function<bool(const Node&)> keeps_;  // whether the loop backwards reads what the loop has saved of a node
  bool differentiable_ = false;
  bool recomputes_ = false;  // the loop backwards makes again what lies in a checkpoint
  size_t saved_ = 0;
  Ints seeds_, wants_, products_;
  std::vector<Value> backward_states_, seeded_, backward_given_;  // of the loop backwards, inside
  AttrGraph body_, backward_;
  std::vector<Value> inputs_;
};

TraceExecutor& tracing() {
  TraceExecutor* const trace = current_trace();
  SLUICE_CHECK_KIND(kRuntime, trace != nullptr, "loop: nothing is traced; an eager program loops itself");
  return *trace;
}

}  // namespace

std::vector<Value> trace_scan(std::span<const Value> states, std::span<const Value> rows, const ScanOptions& options,
                              const LoopBody& body) {
  LoopTrace loop(tracing(), states, rows, options.length, true);
  loop.run(body, grad_enabled());
  // If nothing of a turn is differentiable, the loop is not either.
  const GradMode mode(grad_enabled() && loop.differentiable());
  std::vector<Value> outputs =
      call(ops::scan_op(), loop.inputs(),
           {loop.take_body(), static_cast<int64_t>(states.size()), static_cast<int64_t>(rows.size()), options.length,
            options.reverse, static_cast<int64_t>(loop.num_saved()), loop.take_backward(), loop.seeds(), loop.wants(),
            loop.products(), options.plain});
  outputs.resize(loop.num_given());
  return outputs;
}

std::vector<Value> trace_while(std::span<const Value> states, const LoopBody& body) {
  LoopTrace loop(tracing(), states, {}, 0, false);
  loop.run(body, false);
  return call(ops::while_loop_op(), loop.inputs(), {loop.take_body(), static_cast<int64_t>(states.size())});
}

}  // namespace sluice
