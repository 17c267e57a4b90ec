#pragma once
// A router replaces the inputs of op calls: inside of a branch of a traced program, a call reads what was made outside
// through op "case" (tensor/branches.h).
#include <span>
#include <vector>

#include "graph/value.h"

namespace sluice {

class Router {
 public:
  virtual ~Router() = default;
  // The values that a call reads in place of `inputs`; empty: those themselves.
  virtual std::vector<Value> routed(std::span<const Value> inputs) = 0;
};

// The router of this thread; null, as at first: calls read their inputs.
void set_router(Router* router);

}  // namespace sluice
