// Graphs with sessions on the default engine: what ends them, and when.
#include "live_graphs.h"

#include <mutex>
#include <set>
#include <vector>

#include "actors/stream_executor.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "bindings.h"
#include "runtime/session/session.h"
#include "tensor/session/graph_session.h"

namespace sluice::python {

struct LiveGraphs {
  std::mutex mutex;
  const ForkLock fork_lock{mutex};
  std::set<PyGraph*> graphs;
  std::vector<std::shared_ptr<GraphSession>> left;  // let go before their steps were done

  // Adds the sessions of all graphs that are not closed. REQUIRES: the lock held.
  void add_sessions(std::vector<std::shared_ptr<GraphSession>>& to) const {
    for (const PyGraph* graph : graphs)
      if (graph->session_ != nullptr) to.push_back(graph->session_);
  }
};

namespace {

LiveGraphs& live_graphs() {
  static auto* live = new LiveGraphs();
  return *live;
}

// The patience of a thread that lets a graph go. Steps that take longer go on without it, since their results may be
// held.
constexpr auto kPatience = std::chrono::milliseconds(1500);

bool on_stream_thread() { return actors::StreamExecutor::current() != nullptr; }

void leave(std::shared_ptr<GraphSession> session) {
  std::lock_guard lock(live_graphs().mutex);
  live_graphs().left.push_back(std::move(session));
}

// REQUIRES: the GIL is not held.
void end_graphs_left() {
  std::vector<std::shared_ptr<GraphSession>> left;
  {
    std::lock_guard lock(live_graphs().mutex);
    left.swap(live_graphs().left);
  }
  for (std::shared_ptr<GraphSession>& session : left)
    if (!session->wait_done(Timeout::zero())) leave(std::move(session));
}

}  // namespace

PyGraph::PyGraph(std::unique_ptr<GraphSession> session) : session_(std::move(session)) {
  if (!on_stream_thread()) {
    GilRelease release;
    end_graphs_left();
  }
  std::lock_guard lock(live_graphs().mutex);
  live_graphs().graphs.insert(this);
}

PyGraph::~PyGraph() {
  std::shared_ptr<GraphSession> ending = take();
  {
    std::lock_guard lock(live_graphs().mutex);
    live_graphs().graphs.erase(this);
  }
  if (!ending) return;
  if (on_stream_thread()) {  // a host function held it last, in a step that goes on
    leave(std::move(ending));
    return;
  }
  const UninterruptedScope here;
  GilRelease release;  // its steps in flight may need it
  if (!closing_ && !ending->wait_done(kPatience)) leave(std::move(ending));
  ending.reset();
  end_graphs_left();
}

std::shared_ptr<GraphSession> PyGraph::get() const {
  std::shared_ptr<GraphSession> session = held();
  if (!session) fail(ErrorKind::kRuntime, "graph: it was closed; compile it again to call it");
  return session;
}

std::shared_ptr<GraphSession> PyGraph::held() const {
  std::lock_guard lock(live_graphs().mutex);
  return session_;
}

std::shared_ptr<GraphSession> PyGraph::take() {
  std::lock_guard lock(live_graphs().mutex);
  return std::move(session_);
}

void PyGraph::close() {
  closing_ = true;
  if (const std::shared_ptr<GraphSession> session = held()) session->close();
  take();
}

size_t graphs_left() {
  std::lock_guard lock(live_graphs().mutex);
  return live_graphs().left.size();
}

void finish_all_graphs(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const UninterruptedScope here;
  std::vector<std::shared_ptr<GraphSession>> graphs;
  {
    std::lock_guard lock(live_graphs().mutex);
    graphs.swap(live_graphs().left);
    live_graphs().add_sessions(graphs);
  }
  for (const std::shared_ptr<GraphSession>& graph : graphs) {
    if (!graph->session().valid()) continue;
    try {
      graph->session().wait_all(
          std::max<Timeout>(deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
    } catch (const std::exception&) {
      // The steps' own handles carry their errors.
    }
  }
}

void close_graphs_of_ranks() {
  std::vector<std::shared_ptr<GraphSession>> graphs;
  {
    std::lock_guard lock(live_graphs().mutex);
    live_graphs().add_sessions(graphs);
  }
  for (const std::shared_ptr<GraphSession>& graph : graphs) {
    if (!graph->of_ranks()) continue;
    try {
      graph->close();
    } catch (const Error&) {
      // The job's failure, which whoever waits for a step is told.
    }
  }
}

}  // namespace sluice::python
