#pragma once
// The messages by which the ranks of a job agree on a graph before they compile it. All of it is collective.
#include <string>
#include <utility>
#include <vector>

#include "compiler/compiler.h"
#include "plan/target.h"
#include "tensor/tensor.h"

namespace sluice {

class Engine;
namespace collective {
class Communicator;
class World;
}  // namespace collective

// Every rank's text, in their order.
std::vector<std::string> gather_texts(collective::Communicator& ranks, const std::string& own);

// Throws kValue in every rank when one has another graph, naming the first line that differs: rank, op and the user's
// line on either side.
void check_same_graph(collective::World& world, const graph::Graph& graph, const CompileOptions& options);

// `inputs`, by name, of a graph in which each rank uses its own for what all compute. Throws kValue in every rank when
// contents differ, naming input and rank.
void check_same_inputs(collective::World& world, const std::string& graph,
                       const std::vector<std::pair<std::string, Tensor>>& inputs);

// `names`, which are those of all ranks, described by the ranks they belong to. Throws kUnsupported in every rank when
// one has no such device, or not the kernels for it that another has.
std::vector<plan::DeviceDesc> describe_devices(collective::World& world, Engine& engine,
                                               const std::vector<DeviceId>& names);

}  // namespace sluice
