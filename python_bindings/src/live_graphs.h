#pragma once
// Graphs that hold sessions on the default engine, so that exit can end them first.

namespace sluice::python {

// Without the GIL held: ending a session waits for its kernels, which may be Python functions.
void close_all_graphs();

}  // namespace sluice::python
