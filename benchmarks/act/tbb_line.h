#pragma once
// The peer of act.one_stream: the same line of stages as a oneTBB flow graph, a limiter on every edge, one thread.
#include <memory>

namespace sluice::bench {

class TbbLine {
 public:
  // lightweight: the policy that may run a node's body in the thread that feeds it.
  TbbLine(int actors, int quota, bool lightweight);
  ~TbbLine();
  // Sends `steps` tokens through; nanoseconds per actor and step.
  double ns_per_act(int steps);

 private:
  struct Graph;
  template <class Policy>
  struct GraphOf;
  std::unique_ptr<Graph> graph_;
  const int actors_;
};

}  // namespace sluice::bench
