#pragma once
// Which values of a run may be void, and where a program keeps whether they are.
//
// A kernel with branches (KernelDef::branches) makes some of its outputs void; who reads a void value is left out, and
// what it would have made is void, too. So only what comes of such a kernel can be void, and only programs that touch
// that keep account of it.
#include "actors/build.h"
#include "plan/plan.h"

namespace sluice::actors {

// Fills RunState::void_registers and void_buffers.
void find_voids(RunState& run, const Bindings& bindings);

// The places of one program. REQUIRES: `run` and `program` outlive it; the program has its ports.
class VoidPlaces {
 public:
  VoidPlaces(const RunState& run, int actor, NodeProgram& program) : run_(run), actor_(actor), program_(program) {}
  // Says where it is kept whether the operands of kernel `index` are void; nowhere, if none ever is.
  void add(KernelRun& kernel, int index, bool branches);
  // The same of an output that the actor, a sink, hands out.
  void add_output(const plan::View& view) { program_.sink_voids.push_back(place(view, false)); }

 private:
  int place(const plan::View& view, bool written);
  int new_place();

  const RunState& run_;
  const int actor_;
  NodeProgram& program_;
  std::vector<std::pair<int, int>> buffers_;  // those that have a place
};

}  // namespace sluice::actors
