#pragma once
// Graphs that hold sessions on the default engine, so that exit can end them first.
#include <chrono>
#include <memory>

namespace sluice::collective {
class World;
}

namespace sluice::python {

// All without the GIL held: kernels may be Python functions.
// Waits for the steps in flight.
void finish_all_graphs(std::chrono::milliseconds timeout);
// Ends those that the ranks of a job run together.
void close_graphs_of_ranks();
// The ranks with which the default engine runs plans from now on; null: alone.
void join_world(std::shared_ptr<collective::World> world);

// Ends what runs on the engines that Python programs made beside the default one.
void shutdown_engines(std::chrono::milliseconds timeout);

}  // namespace sluice::python
