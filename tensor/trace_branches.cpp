// Branches of a traced program (sluice.cond).
#include "graph/ops/branches.h"
#include "graph/tape.h"
#include "tensor/branches.h"
#include "tensor/trace_executor.h"

namespace sluice {

// One place where the trace branches, while it is made.
struct TraceBranches final : TraceRegion {
  TraceBranches() : TraceRegion("cond: a branch", "return the new value from both branches and write it outside") {}
  std::vector<Value> bring(const Value& value) override { return ops::case_of(index, value, n); }

  Value index;
  int64_t n = 0;
};

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
  trace_->begin_region(*state_, static_cast<size_t>(branch));
  const struct End {
    TraceExecutor* trace;
    ~End() { trace->end_region(false); }
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
