#pragma once
// Compiles graphs: text and weights in, a bundle out. Only in sluice::sluice; sluice::runtime has no compiler.
#include <cstdint>
#include <string>
#include <vector>

#include "engine.h"
#include "export.h"
#include "plan.h"
#include "tensor.h"

namespace sluice::api {

struct CompileOptions {
  std::string device = "cpu";     // of nodes that name none
  int steps_in_flight = 2;        // that a session of it can pipeline
  uint64_t memory_budget = 0;     // bytes; a plan that needs more is refused. 0: none
  uint64_t workspace_limit = 0;   // bytes of a kernel; an op without one that keeps it is refused. 0: none
  bool one_actor_per_op = false;  // instead of one per stream where possible
  std::vector<std::string> disabled_passes = {};
  // Inputs whose memory results take over where the plan can: of a session with zero_copy, what is handed over for one
  // is then the memory of a result.
  std::vector<std::string> donated = {};
  // Inputs lie in the memory of the device that reads them first, outputs in that of the device that makes them; a
  // session with device_ports takes and gives them there. Off: all of them in the host's. Throws kUnsupported for a
  // graph over a mesh of devices.
  bool device_ports = false;
  // The cores that kernels on the CPU use; sessions of plans made for few run at the same time. 0: all of the engine's.
  int cores = 0;
};

// Compiles `graph_text` (as in a bundle's graph.txt) for the devices of `engine`, with its extensions, and writes a
// bundle directory. `weights` gives every variable of the graph. Throws kValue, kType, kUnsupported with the line, kIo.
SLUICE_API void compile(Engine& engine, const std::string& graph_text, const std::vector<NamedTensor>& weights,
                        const std::string& bundle, const CompileOptions& options = {});
// Plans the graph of a bundle anew, of a plan family those of all its members, and writes it as the bundle `to`, which
// may be the same. Throws the same.
SLUICE_API void replan(Engine& engine, const std::string& bundle, const std::string& to,
                       const CompileOptions& options = {});

// Writes as the bundle `to` the plan family of which `members` are bundles with a plan each. They are for the sizes
// that the members of the family `like` are for, in its order; axes of `inputs` and `outputs` are of its dims
// (Port::dims). Weights that are equal are written once. Throws kValue, kIo.
SLUICE_API void join(const std::vector<std::string>& members, const std::string& like, const std::vector<Port>& inputs,
                     const std::vector<Port>& outputs, const std::string& to);

}  // namespace sluice::api
