#pragma once
// Plans of actors in a line, as large as asked for.
#include "plan/plan.h"

namespace sluice::bench {

struct LineOptions {
  int actors = 200;
  int quota = 2;
  int streams = 1;          // actor i runs on stream i % streams
  bool neighbours = false;  // on as few streams as possible: one after the other, not in turns
  bool stamps = false;      // every actor runs a kernel of op "stamp" with its index as attribute `actor`
  bool idle = false;        // every actor runs a kernel that does nothing
  bool one_firing =
      false;  // the kernels of all of them are one actor's program, as the compiler makes it of such lines
};

// A source, and actors that pass its tokens on, joined by control registers.
plan::Plan line_plan(const LineOptions& options);

}  // namespace sluice::bench
