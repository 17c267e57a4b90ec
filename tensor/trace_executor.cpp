#include "tensor/trace_executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "graph/calls/call_fix.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/global.h"
#include "graph/ops/indexing.h"
#include "graph/ops/movement.h"
#include "graph/ops/shaping.h"
#include "graph/origin.h"
#include "graph/tape.h"
#include "plan/extents.h"
#include "tensor/eager_memory.h"

namespace sluice {
namespace {

using graph::kNoValue;
using graph::ValueId;

uint64_t new_trace_number() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// The same with strides of which no axis continues another: what is a view of it is one of any strides.
TensorSpec without_order(TensorSpec spec) {
  for (int i = 0; i < spec.shape.rank(); ++i) spec.strides[i] = int64_t{1} << i;
  return spec;
}

int64_t bytes_of(const Value& value) { return numel(value.shape()) * static_cast<int64_t>(dtype_size(value.dtype())); }

// `base` with `value` in the elements that `steps` lead to: each at most once, though a step on the way repeats some.
Value write_at(const Value& base, std::span<const ViewStep> steps, const Value& value) {
  // Constant, so they are computed while tracing.
  Value places = ops::reshape(ops::iota(0, 1, numel(base.shape())), base.shape().vec());
  for (const ViewStep& step : steps) places = call1(*step.op, {places}, step.attrs);
  const Value written = ops::scatter(ops::flatten(base), ops::flatten(places), ops::flatten(value), 0);
  return ops::reshape(written, base.shape().vec());
}

}  // namespace

namespace {

// Uses memory whose content is the graph's: there is none to be read or written outside of it.
struct ContentOfAStep final : StorageUser {
  void wait_idle(bool) override {
    fail(ErrorKind::kRuntime,
         "graph: a tensor that build() made and wrote to was used outside of the graph: its content is there only in a "
         "step; return it from build()");
  }
};
std::shared_ptr<StorageUser> content_of_a_step() {
  static const auto user = std::make_shared<ContentOfAStep>();
  return user;
}

}  // namespace

TraceExecutor::TraceExecutor(EagerExecutor& eager, std::string graph_name)
    : GraphBuilder(graph_storage_, DeviceId{}), eager_(eager), trace_(new_trace_number()) {
  graph_storage_.name = std::move(graph_name);
}

Value TraceExecutor::make_value(ValueId id, DeviceId device) {
  return Value(std::make_shared<TracedImpl>(trace_, TensorSpec::contiguous(graph_.type(id)), device, id));
}

TraceVariable* TraceExecutor::variable_of(const Value& value) {
  if (value.impl()->traced() || variables_.empty()) return nullptr;
  TraceVariable* const found = variables_.find(eager_impl(value).storage().get());
  if (found == nullptr || found->index >= 0) return found;
  found->index = static_cast<int>(graph_.variables().size());
  found->initial = graph_.add_variable(found->name, found->tensor.type());
  found->laid = found->cell->current = lay(found->initial, eager_impl(found->tensor));
  variables_.use(*found);
  return found;
}

ValueId TraceExecutor::lay(ValueId id, const EagerImpl& impl) {
  if (!impl.global) return id;
  graph::Node node;
  node.op = &ops::to_global_op();
  node.attrs = ops::to_global_attrs(*impl.global);
  node.inputs = {id};
  const graph::NodeContext outer = context;
  refresh_context();
  static_cast<Provenance&>(node) = context;
  context = outer;
  return graph_.nodes()[graph_.add_node(std::move(node))].outputs[0];
}

std::shared_ptr<TraceCell> TraceExecutor::cell_of(const Value& value) {
  if (!value.impl()->traced()) return variable_of(value)->cell;
  return static_cast<const TracedImpl&>(*value.impl()).cell;
}

ValueId TraceExecutor::apply_steps(ValueId base, DeviceId device, const std::vector<ViewStep>& steps) {
  const graph::NodeContext outer = context;  // of the call that reads the view, if any
  refresh_context();
  context.every = rate_of_views(base);
  ValueId id = base;
  for (const ViewStep& step : steps) {
    const Value input = handle(id, device);
    id = static_cast<const TracedImpl&>(*GraphBuilder::call(*step.op, {&input, 1}, step.attrs)[0].impl()).id;
  }
  context = outer;
  return id;
}

// The value of the graph that `value` holds now; a view is computed anew after its base was written.
ValueId TraceExecutor::current_id(const Value& value) {
  if (!value.impl()->traced()) {
    const TraceVariable& variable = *variable_of(value);
    return apply_steps(variable.cell->current, value.device(), variable.steps_to(eager_impl(value)));
  }
  auto& impl = static_cast<TracedImpl&>(*value.impl());
  SLUICE_CHECK_KIND(
      kRuntime, impl.trace == trace_,
      "graph '{}': a value of another graph, or of one that is finished, was used: {}; only values made while "
      "this graph is traced can be",
      graph_.name, value.type().str());
  SLUICE_CHECK_KIND(kRuntime, !regions_.closed(impl.cell->current),
                    "graph '{}': a value of one turn of a loop was used outside of the loop's body: {}; return it from "
                    "the body",
                    graph_.name, value.type().str());
  if (impl.view_steps().empty()) return impl.cell->current;
  if (impl.id_version != impl.version() || regions_.closed(impl.id)) {
    impl.id = apply_steps(impl.cell->current, impl.device(), impl.view_steps());
    impl.id_version = impl.version();
  }
  return impl.id;
}

ValueId TraceExecutor::import_value(const Value& value) {
  if (touches_graph(value)) return current_id(value);
  return capture_constant(value);
}

ValueId TraceExecutor::capture_constant(const Value& value) {
  ValueId& known = constants_.of(value);
  if (known != kNoValue) return known;
  const EagerImpl& impl = eager_impl(value);
  // A copy: what happens to the tensor later does not concern this graph.
  const Value content = impl.on_host() ? eager_.copy(value) : eager_.copy_to(value, {});
  if (impl.global) static_cast<EagerImpl&>(*content.impl()).lay(impl.global, impl.type());
  const std::string name = names_.take("const");
  known = lay(graph_.add_variable(name, value.type(), /*constant=*/true), impl);
  constants_.add(value, name, content);
  autograd_.keep(value);
  return known;
}

void TraceExecutor::adopt(const Value& constant) {
  const EagerImpl& impl = eager_impl(constant);
  const Value whole = impl.base() ? Value(impl.base()) : constant;
  auto cell = std::make_shared<TraceCell>(capture_constant(whole));
  impl.storage()->attach(content_of_a_step(), true);
  variables_.add("made by build()", whole, std::move(cell)).index = 0;  // no variable of the graph, but in it
}

bool TraceExecutor::was_adopted(const Value& value) {
  return value.defined() && !value.impl()->traced() && eager_impl(value).storage()->number() >= first_storage_ &&
         variable_of(value) != nullptr;
}

std::vector<Value> TraceExecutor::call(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) {
  const auto traced = [&](const Value& v) { return touches_graph(v) || (v.defined() && eager_impl(v).global); };
  if (!op.effectful && std::none_of(inputs.begin(), inputs.end(), traced)) {
    const ExecutorScope now(eager_);
    return eager_.call(op, inputs, attrs);
  }
  refresh_context();
  if (op.host && context.role == Role::kForward) context.role = Role::kData;
  if (!op.view || !touches_graph(inputs[0])) return GraphBuilder::call(op, inputs, attrs);
  context.every = rate_of_views(current_id(inputs[0]));

  const auto parent = std::static_pointer_cast<TensorImpl>(inputs[0].ptr());
  const std::shared_ptr<TraceCell> cell = cell_of(inputs[0]);
  Value made = GraphBuilder::call(op, inputs, attrs)[0];  // infers, and so checks the arguments
  const ValueId id = static_cast<const TracedImpl&>(*made.impl()).id;
  const std::optional<OpDef::ViewSpec> view = op.view(parent->spec(), attrs);
  if (parent->traced() && !op.view(without_order(parent->spec()), attrs))
    strides_decided(inputs[0], view ? Value() : made);
  if (!view) return {made};
  // An eager alias of a variable is no base of views; the variable's own tensor is.
  std::shared_ptr<TensorImpl> base = parent;
  if (!parent->traced() && !parent->base())
    base = std::static_pointer_cast<TensorImpl>(variable_of(inputs[0])->tensor.ptr());
  const TensorSpec spec{made.dtype(), view->shape, view->strides};
  return {Value(std::make_shared<TracedImpl>(trace_, cell, base, ViewStep{&op, attrs}, spec, id))};
}

void TraceExecutor::assign(const Value& target, const Value& source) {
  const bool constant = !touches_graph(target);
  if (regions_.any()) check_write_in_region(target, constant);
  if (constant) {
    const Storage& memory = *eager_impl(target).storage();
    SLUICE_CHECK_KIND(
        kRuntime, memory.number() >= first_storage_ || (!touches_graph(source) && !constants_.taken_from(memory)),
        "assign: in-place write inside graph '{}' to a tensor that is not part of it: {}; register it as a "
        "buffer or parameter, or return the new value",
        graph_.name, target.type().str());
  }
  if (constant && !touches_graph(source)) {
    const ExecutorScope now(eager_);
    return eager_.assign(target, source);
  }
  if (constant) adopt(target);
  const TensorSpec& spec = tensor_impl(target).spec();
  for (int i = 0; i < spec.shape.rank(); ++i)
    SLUICE_CHECK_KIND(
        kRuntime, spec.strides[i] != 0 || spec.shape[i] <= 1 || numel(spec.shape) == 0,
        "assign: unsupported operation: more than one element of the written-to tensor refers to a single "
        "memory location: {} with strides {}; clone() the tensor before writing",
        target.type().str(), spec.strides.str());
  const GradMode off(false);
  Value value = ops::cast(source, target.dtype());
  SLUICE_CHECK(
      value.rank() <= target.rank() && broadcast_shapes(value.shape(), target.shape(), "assign") == target.shape(),
      "assign: shapes do not fit: source is {}, target is {}; the source must broadcast to the target",
      source.shape().str(), target.shape().str());
  value = ops::expand(value, target.shape());

  const bool traced = target.impl()->traced();
  const std::shared_ptr<TraceCell> cell = cell_of(target);
  const std::vector<ViewStep> steps =
      traced ? tensor_impl(target).view_steps() : variable_of(target)->steps_to(eager_impl(target));
  // The base and what each view step makes of it, then the way back.
  std::vector<Value> stages{handle(cell->current, target.device())};
  for (size_t i = 0; i + 1 < steps.size(); ++i)
    stages.push_back(handle(apply_steps(id(stages.back()), target.device(), {steps[i]}), target.device()));
  const Value written = value;
  size_t left = steps.size();
  // A view that repeats elements has no way back of its own: later steps say which of the equal elements were written.
  for (size_t i = 0; i + 1 < stages.size() && left == steps.size(); ++i)
    if (bytes_of(stages[i + 1]) > bytes_of(stages[i])) left = i;
  if (left < steps.size()) value = write_at(stages[left], std::span(steps).subspan(left), value);
  while (left-- > 0) value = steps[left].op->unview(stages[left], steps[left].attrs, value);
  cell->current = id(value);
  for (TraceCell* of = cell.get(); of != nullptr; of = of->copy_of.get()) of->written = true;
  static_cast<TensorImpl&>(*target.impl()).bump_version();
  if (!traced || steps.empty()) return;
  auto& impl = static_cast<TracedImpl&>(*target.impl());
  impl.id = id(written);
  impl.id_version = impl.version();
}

Value TraceExecutor::detach(const Value& value) {
  const TensorImpl& impl = tensor_impl(value);
  // The memory of a whole variable makes it the same variable.
  if (!touches_graph(value) || (!impl.traced() && !impl.base())) return eager_.detach(value);
  std::shared_ptr<TensorImpl> base;  // without history, too, for a write to the view must be none to its base
  if (impl.base()) base = std::static_pointer_cast<TensorImpl>(detach(Value(impl.base())).ptr());
  auto alias = std::make_shared<TracedImpl>(trace_, cell_of(value), impl, impl.view_steps(), std::move(base));
  if (!impl.traced()) return Value(std::move(alias));
  alias->id = static_cast<const TracedImpl&>(impl).id;
  alias->id_version = static_cast<const TracedImpl&>(impl).id_version;
  return Value(std::move(alias));
}

Value TraceExecutor::copy(const Value& value) {
  if (!touches_graph(value)) return eager_.copy(value);
  refresh_context();
  return handle(current_id(value), value.device());
}

Value TraceExecutor::in_graph_of(const Value& other, const Value& value) {
  if (!touches_graph(other) || touches_graph(value)) return value;
  refresh_context();
  return handle(capture_constant(value), value.device());
}

std::shared_ptr<const Provenance> TraceExecutor::origin() {
  const Provenance& now = context;
  if (!origin_ || origin_->source != now.source || origin_->module != now.module || origin_->role != now.role ||
      origin_->region != now.region)
    origin_ = std::make_shared<Provenance>(now);
  return origin_;
}

void TraceExecutor::on_node(int index) {
  graph::Node& node = graph_.mutable_nodes()[index];
  if (node.region != 0) node.kept = keeps(trace_context().recomputing.now().policy, graph_, node);
}

void TraceExecutor::refresh_context() {
  TraceContext& scope = trace_context();
  context.placement = scope.placing.now().placement;
  context.quota = scope.placing.now().quota;
  context.every = scope.every.now();
  static_cast<Provenance&>(context) = {scope.source ? scope.source() : SourceLocation{}, scope.module.now(),
                                       Role::kForward, scope.recomputing.now().region};
  const OriginScope* const on_behalf = OriginScope::innermost();
  if (on_behalf != nullptr && on_behalf->of() != nullptr) static_cast<Provenance&>(context) = *on_behalf->of();
  const bool on_host = context.placement.stream.starts_with("host");
  context.role = on_behalf != nullptr ? on_behalf->role() : on_host ? Role::kData : Role::kForward;
  if (const std::string* device = CallFixes::placement(context.source, "device"))
    context.placement.device = parse_device(*device);
  if (const std::string* stream = CallFixes::placement(context.source, "stream")) context.placement.stream = *stream;
}

Value TraceExecutor::add_input(const std::string& name, const TensorType& type, const std::optional<Strides>& strides) {
  SLUICE_CHECK(!strides || strides->rank() == type.shape.rank(), "trace: input '{}' has strides {}; its shape is {}",
               name, strides->str(), type.shape.str());
  const ValueId id = graph_.add_input(name, type);
  const TensorSpec spec{type.dtype, type.shape, strides.value_or(contiguous_strides(type.shape))};
  auto input = std::make_shared<TracedImpl>(trace_, spec, default_device_, id);
  inputs_.push_back(input->cell);
  return Value(std::move(input));
}

void TraceExecutor::register_variable(const std::string& name, const Value& tensor) {
  SLUICE_CHECK(tensor.defined() && !tensor.impl()->traced(),
               "trace: variable '{}' is no tensor with memory; register what is not traced", name);
  const bool known = variables_.find(eager_impl(tensor).storage().get()) != nullptr;
  const std::shared_ptr<TensorImpl>& base = tensor_impl(tensor).base();
  if (base) autograd_.keep(tensor);
  if (known) return;
  SLUICE_CHECK(names_.claim(name), "trace: variable '{}' is registered already; names must be unique", name);
  add_variable(name, base ? Value(base) : tensor);  // a view is read and written through the whole
}

void TraceExecutor::add_variable(const std::string& name, const Value& tensor) {
  variables_.add(name, tensor, std::make_shared<TraceCell>());
  autograd_.keep(tensor);
}

std::pair<Value, int64_t> TraceExecutor::random_state(const Value& state) {
  if (variables_.find(eager_impl(state).storage().get()) == nullptr) add_variable(names_.take("generator"), state);
  TraceVariable& variable = *variable_of(state);
  variable.random = true;
  return {handle(variable.initial, default_device_), next_salt_++};
}

Value TraceExecutor::handle_of(ValueId id) {
  const graph::ValueInfo& value = graph_.values()[id];
  const bool placed = value.kind == graph::ValueKind::kNode && graph_.nodes()[value.index].placement.device;
  return handle(id, placed ? *graph_.nodes()[value.index].placement.device : default_device_);
}

void TraceExecutor::begin_region(TraceRegion& region, size_t current) {
  if (!regions_.any()) set_router(this);
  regions_.begin(region, current);
}

void TraceExecutor::end_region(bool closed) {
  regions_.end(closed);
  if (!regions_.any()) set_router(nullptr);
}

Value TraceExecutor::stand_in(const TensorType& type, const DeviceId& device) {
  const OpDef& full = builtin_ops().get("full");
  refresh_context();
  return handle(id(GraphBuilder::call(full, {}, {type.shape.vec(), 0.0, type.dtype})[0]), device);
}

// The value as the innermost region reads it. Called by bring() in turn, for the regions around that one.
Value TraceExecutor::route(const Value& value) {
  if (!value.defined()) return value;
  TraceRegion& region = regions_.innermost();
  const bool traced = touches_graph(value);
  if (!traced && !region.brings_constant(value)) return value;
  if (traced && !regions_.outside(cell_of(value)->current)) return value;  // of a view, where its memory was made
  const ValueId id = traced ? current_id(value) : graph::kNoValue;
  const auto [entry, fresh] = region.routed.try_emplace({value.ptr().get(), id});
  TraceRegion::Routed& routed = entry->second;
  if (fresh) {
    const TraceRegions::Outside outside(regions_);
    const GradMode recording(true);  // another call inside may want its history
    routed = {value, id, region.bring(value)};
    for (const Value& output : routed.outputs) region.copies.insert(current_id(output));
  }
  return routed.outputs[region.current];
}

std::vector<Value> TraceExecutor::routed(std::span<const Value> inputs) {
  std::vector<Value> values;
  // Calls on others' values, of constants or of a gradient rule's symbols, are none of the region.
  if (!regions_.any() || &current_executor() != static_cast<const Executor*>(this)) return values;
  for (const Value& input : inputs) values.push_back(route(input));
  return values;
}

void TraceExecutor::check_write_in_region(const Value& target, bool constant) {
  const TraceRegion& region = regions_.innermost();
  bool own = false;
  if (constant) {
    own = static_cast<const EagerImpl&>(*target.impl()).storage()->number() >= region.first_storage;
  } else {
    own = regions_.owns(cell_of(target)->current);
  }
  SLUICE_CHECK_KIND(kUnsupported, own, "{} writes in place to a tensor from outside: {}; {}", region.owner,
                    target.type().str(), region.advice);
}

}  // namespace sluice
