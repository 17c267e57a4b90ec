#pragma once
// Loops of a traced program: their bodies are traced once, and become attributes of ops "scan" and "while_loop"
// (graph/ops/loops.h), whose plan does not grow with the number of turns.
//
// Thread safety: none; one thread traces.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "graph/value.h"

namespace sluice {

// Gets what one turn takes: states, then rows. Gives the next states, then what is stacked.
using LoopBody = std::function<std::vector<Value>(std::span<const Value> taken)>;

struct ScanOptions {
  int64_t length = 0;
  bool reverse = false;
  // The body calls ops and nothing else that gradients depend on (detach, no_grad, functions with a backward of their
  // own), so that gradients of gradients may be those of the loop unrolled; else they are refused.
  bool plain = false;
};

// The last states, then what was stacked, of `length` turns, of which each takes a row of `rows`. A value that the body
// reads from outside is the same for all turns; the gradients of all these are those of a loop backwards. Throws
// kRuntime when nothing is traced, kType where a state changes its type, kUnsupported where the body writes in place to
// the outside, or draws random numbers.
std::vector<Value> trace_scan(std::span<const Value> states, std::span<const Value> rows, const ScanOptions& options,
                              const LoopBody& body);

// The last states of turns that run as long as the first state, a bool scalar, is true. It has no gradient.
std::vector<Value> trace_while(std::span<const Value> states, const LoopBody& body);

}  // namespace sluice
