#pragma once
// Graphs that hold sessions on the default engine, so that exit can end them first.
#include <chrono>

namespace sluice::python {

// Both without the GIL held: kernels may be Python functions.
// Waits for the steps in flight.
void finish_all_graphs(std::chrono::milliseconds timeout);

// Ends what runs on the engines that Python programs made beside the default one.
void shutdown_engines(std::chrono::milliseconds timeout);

}  // namespace sluice::python
