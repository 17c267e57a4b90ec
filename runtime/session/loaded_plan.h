#pragma once
// A plan that has been loaded, and all that its session needs to run it.
#include <map>
#include <memory>
#include <vector>

#include "actors/build.h"
#include "base/files/mapped_file.h"
#include "memory/storage.h"
#include "runtime/session/exchange.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/ports.h"
#include "runtime/session/session.h"
#include "streams/collective/world.h"

namespace sluice {

class SpillFile;

struct LoadedPlan {
  plan::Plan plan;
  SessionOptions options;
  std::vector<std::shared_ptr<actors::StreamExecutor>> streams;  // per plan stream
  std::vector<std::shared_ptr<Storage>> variables;               // per plan variable
  std::vector<bool> variable_written, variable_mapped;
  std::vector<std::shared_ptr<PackedWeight>> packed;       // per packed copy of the plan
  std::vector<std::shared_ptr<const MappedFile>> files;    // whose pages variables are
  std::vector<std::shared_ptr<Storage>> arenas;            // the block that each lies in
  std::vector<bool> arena_shared;                          // with other sessions
  uint64_t least_in_flight = 1;                            // steps, for other ranks' sake
  std::shared_ptr<collective::World> world;                // of a plan of several ranks, of which this is one
  std::vector<std::shared_ptr<collective::World>> worlds;  // of one whose ranks are all in this process
  std::map<int, std::unique_ptr<collective::Communicator>> communicators;  // by group
  std::vector<std::shared_ptr<const int>> lanes;                           // streams of its own, by number
  std::vector<std::shared_ptr<const PreparedKernel>> kernels;
  std::shared_ptr<SpillFile> spill_file;  // of a plan that spills
  Ports ports;
  Exchange exchange;  // of ports
  actors::Bindings bindings;
};

}  // namespace sluice
