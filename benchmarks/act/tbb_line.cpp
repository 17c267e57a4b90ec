#include "act/tbb_line.h"

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <tuple>
#include <vector>

namespace sluice::bench {
namespace {

namespace flow = oneapi::tbb::flow;

struct Token {
  uint32_t reg, slot;
  uint64_t step;
};

}  // namespace

struct TbbLine::Graph {
  oneapi::tbb::global_control one_thread{oneapi::tbb::global_control::max_allowed_parallelism, 1};
  flow::graph graph;
  uint64_t arrived = 0;
  virtual ~Graph() = default;
  virtual void put(const Token& token) = 0;
};

// Per stage: a queue, a limiter that passes `quota` tokens on, and a node that gives a credit back per token.
template <class Policy>
struct TbbLine::GraphOf final : Graph {
  using Node = flow::multifunction_node<Token, std::tuple<Token, flow::continue_msg>, Policy>;
  std::vector<std::unique_ptr<flow::queue_node<Token>>> queues;
  std::vector<std::unique_ptr<flow::limiter_node<Token>>> limiters;
  std::vector<std::unique_ptr<Node>> nodes;

  GraphOf(int actors, int quota) {
    for (int i = 0; i < actors; ++i) {
      const bool last = i + 1 == actors;
      queues.push_back(std::make_unique<flow::queue_node<Token>>(graph));
      limiters.push_back(std::make_unique<flow::limiter_node<Token>>(graph, static_cast<size_t>(quota)));
      nodes.push_back(std::make_unique<Node>(graph, flow::serial,
                                             [this, last](const Token& token, typename Node::output_ports_type& ports) {
                                               if (last) ++arrived;
                                               std::get<0>(ports).try_put(token);
                                               std::get<1>(ports).try_put(flow::continue_msg{});
                                             }));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      flow::make_edge(*queues[i], *limiters[i]);
      flow::make_edge(*limiters[i], *nodes[i]);
      flow::make_edge(std::get<1>(nodes[i]->output_ports()), limiters[i]->decrementer());
      if (i + 1 < nodes.size()) flow::make_edge(std::get<0>(nodes[i]->output_ports()), *queues[i + 1]);
    }
  }
  ~GraphOf() override { graph.wait_for_all(); }
  void put(const Token& token) override { queues[0]->try_put(token); }
};

TbbLine::TbbLine(int actors, int quota, bool lightweight) : actors_(actors) {
  if (lightweight) {
    graph_ = std::make_unique<GraphOf<flow::queueing_lightweight>>(actors, quota);
  } else {
    graph_ = std::make_unique<GraphOf<flow::queueing>>(actors, quota);
  }
}

TbbLine::~TbbLine() = default;

double TbbLine::ns_per_act(int steps) {
  const uint64_t before = graph_->arrived;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) graph_->put({0, static_cast<uint32_t>(i & 1), static_cast<uint64_t>(i)});
  graph_->graph.wait_for_all();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin;
  if (graph_->arrived - before != static_cast<uint64_t>(steps)) {
    std::fprintf(stderr, "act_bench: oneTBB lost tokens: %d sent\n", steps);
    return 0;
  }
  return elapsed.count() / (static_cast<double>(actors_) * steps);
}

}  // namespace sluice::bench
