#pragma once
// Pointers of Python objects to sessions on the default engine, all known here, so that exit can end them first.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

namespace sluice {
class GraphSession;
namespace collective {
class World;
}
}  // namespace sluice

namespace sluice::python {

// The pointer by which a Python object holds a GraphSession, apart from both because the session ends before the object
// does, by close() or at exit, and after it where steps are in flight. Whoever is in a call of it keeps it meanwhile.
class PyGraph {
 public:
  explicit PyGraph(std::unique_ptr<GraphSession> session);
  PyGraph(const PyGraph&) = delete;
  ~PyGraph();
  // Throws kRuntime once closed.
  std::shared_ptr<GraphSession> get() const;
  // Null once closed.
  std::shared_ptr<GraphSession> held() const;
  // Throws kTimeout naming who is stuck; then it can be closed again, and is abandoned when it is let go.
  void close();

 private:
  friend struct LiveGraphs;
  std::shared_ptr<GraphSession> take();

  std::shared_ptr<GraphSession> session_;  // under the lock of all live graphs
  std::atomic<bool> closing_{false};
};

// How many graphs were let go before their steps were done; they end later.
size_t graphs_left();

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
