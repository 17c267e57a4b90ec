// What tracing does inside of branches (sluice.cond).
#include "graph/autodiff/tape.h"
#include "graph/ops/branches.h"
#include "tensor/branches.h"
#include "tensor/trace_executor.h"

namespace sluice {

using graph::ValueId;
using graph::ValueKind;

void TraceExecutor::begin_branch(TraceBranches& branches, int64_t current) {
  if (branches.first_storage == 0) {
    branches.first = graph_.nodes().size();
    branches.first_storage = Storage::next_number();
  }
  branches.current = current;
  if (branches_.empty()) set_router(this);
  branches_.push_back(&branches);
}

void TraceExecutor::end_branch() {
  branches_.pop_back();
  if (branches_.empty()) set_router(nullptr);
}

bool TraceExecutor::outside(ValueId id) const {
  const graph::ValueInfo& info = graph_.values()[id];
  return info.kind != ValueKind::kNode || static_cast<size_t>(info.index) < branches_.back()->first;
}

// As the innermost branch reads it. Called by case_of() in turn, for the branches around that one.
Value TraceExecutor::route(const Value& value) {
  if (!value.defined() || !touches_graph(value)) return value;
  if (!outside(cell_of(value)->current)) return value;  // of a view, where its memory was made
  const ValueId id = current_id(value);
  TraceBranches& branches = *branches_.back();
  const auto [entry, fresh] = branches.routed.try_emplace({value.ptr().get(), id});
  TraceBranches::Routed& routed = entry->second;
  if (fresh) {
    branches_.pop_back();
    const struct Again {
      std::vector<TraceBranches*>& stack;
      TraceBranches* top;
      ~Again() { stack.push_back(top); }
    } again{branches_, &branches};
    const GradMode recording(true);  // another call of the branch may want its history
    routed = {value, id, ops::case_of(branches.index, value, branches.n)};
    for (const Value& output : routed.outputs) branches.copies.insert(current_id(output));
  }
  return routed.outputs[static_cast<size_t>(branches.current)];
}

std::vector<Value> TraceExecutor::routed(std::span<const Value> inputs) {
  std::vector<Value> values;
  // Calls on others' values, of constants or of a gradient rule's symbols, are none of the branch.
  if (branches_.empty() || &current_executor() != static_cast<const Executor*>(this)) return values;
  for (const Value& input : inputs) values.push_back(route(input));
  return values;
}

void TraceExecutor::check_write_in_branch(const Value& target, bool constant) {
  bool own = false;
  if (constant) {
    own = static_cast<const EagerImpl&>(*target.impl()).storage()->number() >= branches_.back()->first_storage;
  } else {
    const ValueId now = cell_of(target)->current;
    own = !outside(now) && !branches_.back()->copies.contains(now);
  }
  SLUICE_CHECK_KIND(kUnsupported, own,
                    "cond: a branch writes in place to a tensor from outside: {}; return the new value from both "
                    "branches and write it outside",
                    target.type().str());
}

Branches::Branches(const Value& index, int64_t n) : trace_(current_trace()), state_(std::make_unique<TraceBranches>()) {
  SLUICE_CHECK_KIND(kRuntime, trace_ != nullptr, "cond: nothing is traced; an eager program takes one branch itself");
  SLUICE_CHECK(index.defined() && trace_->touches_graph(index), "cond: the predicate is a constant; take its branch");
  const std::vector<Value> outer = trace_->routed({&index, 1});
  state_->index = outer.empty() ? index : outer[0];
  state_->n = n;
}

Branches::~Branches() = default;

std::vector<Value> Branches::run(int64_t branch, const std::function<std::vector<Value>()>& trace) {
  SLUICE_CHECK_KIND(kRuntime, current_trace() == trace_, "cond: a branch is traced into another graph");
  trace_->begin_branch(*state_, branch);
  const struct End {
    TraceExecutor* trace;
    ~End() { trace->end_branch(); }
  } end{trace_};
  const std::vector<Value> results = trace();
  std::vector<Value> own = trace_->routed(results);
  return own;
}

std::vector<Value> Branches::join(std::span<const std::vector<Value>> results) const {
  std::vector<Value> joined;
  for (size_t r = 0; r < results[0].size(); ++r) {
    std::vector<Value> values;
    for (const std::vector<Value>& branch : results) values.push_back(branch[r]);
    joined.push_back(ops::esac(state_->index, values));
  }
  return joined;
}

}  // namespace sluice
