#pragma once
// Branches of a traced program, of which each step takes one: what a branch reads from outside comes by op "case", and
// results meet in op "esac" (graph/ops/branches.h).
//
// Thread safety: none; one thread traces.
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tensor/trace.h"

namespace sluice {

struct TraceBranches;

class Branches {
 public:
  // `index`: a scalar, bool or whole number, of the graph that this thread traces. Throws kRuntime when there is none,
  // kValue when the index is a constant.
  Branches(const Value& index, int64_t n);
  ~Branches();
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  // Traces a branch: op calls that `trace` makes belong to it. Returns its results. In-place writes to what was there
  // before throw kUnsupported.
  std::vector<Value> run(int64_t branch, const std::function<std::vector<Value>()>& trace);
  // The results of the branch that a step takes. REQUIRES: those of every branch, equally many, of equal types.
  std::vector<Value> join(std::span<const std::vector<Value>> results) const;

 private:
  TraceExecutor* const trace_;
  const std::unique_ptr<TraceBranches> state_;
};

}  // namespace sluice
