#include "graph/clusters.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace sluice::graph {
namespace {

constexpr int kNone = -1;

class Clusters {
 public:
  Clusters(const Graph& graph, const std::vector<int>& kinds) : graph_(graph), kinds_(kinds) {
    const int count = static_cast<int>(graph.nodes().size());
    parent_.resize(static_cast<size_t>(count));
    std::iota(parent_.begin(), parent_.end(), 0);
    std::vector<int> level(static_cast<size_t>(count), 0);
    for (int node = 0; node < count; ++node) {
      for (const int made : read_by(node))
        level[at(node)] = std::max(level[at(node)], level[at(made)] + (kind(made) != kind(node)));
      if (kind(node) == kNone) continue;
      for (const int made : read_by(node))
        if (kind(made) == kind(node) && level[at(made)] == level[at(node)]) parent_[at(root(made))] = root(node);
    }
    join_all();
  }

  std::vector<int> numbers() {
    const size_t count = parent_.size();
    std::vector<int> last(count, kNone), number(count, kNone);
    for (size_t node = 0; node < count; ++node)
      if (kinds_[node] != kNone) last[at(root(static_cast<int>(node)))] = static_cast<int>(node);
    int next = 0;
    std::map<int, int> of_root;
    for (size_t node = 0; node < count; ++node) {
      const int r = root(static_cast<int>(node));
      if (kinds_[node] != kNone && last[at(r)] == static_cast<int>(node)) of_root[r] = next++;
    }
    for (size_t node = 0; node < count; ++node)
      if (kinds_[node] != kNone) number[node] = of_root.at(root(static_cast<int>(node)));
    return number;
  }

 private:
  static size_t at(int node) { return static_cast<size_t>(node); }
  int kind(int node) const { return kinds_[at(node)]; }

  int root(int node) {
    while (parent_[at(node)] != node) node = parent_[at(node)] = parent_[at(parent_[at(node)])];
    return node;
  }

  // The nodes that make what a node reads.
  std::vector<int> read_by(int node) const {
    std::vector<int> made;
    for (const ValueId input : graph_.nodes()[at(node)].inputs)
      if (input != kNoValue && graph_.values()[at(input)].kind == ValueKind::kNode)
        made.push_back(graph_.values()[at(input)].index);
    return made;
  }

  // The values that each cluster, or node in none, reads of others.
  using Edges = std::map<int, std::set<int>>;
  Edges edges() {
    Edges edges;
    for (int node = 0; node < static_cast<int>(parent_.size()); ++node)
      for (const int made : read_by(node))
        if (root(made) != root(node)) edges[root(node)].insert(root(made));
    return edges;
  }

  // Is there a way from `from` back to `to` that is longer than an edge? `most` bounds the search: a pair that would
  // need a longer one stays apart. Numbers of nodes say nothing of the way: clusters overlap in program order.
  static bool leads_around(const Edges& edges, int from, int to, size_t most) {
    std::vector<int> open;
    std::set<int> seen;
    const auto visit = [&](int of, bool direct) {
      const auto found = edges.find(of);
      if (found == edges.end()) return;
      for (const int read : found->second)
        if (!(direct && read == to) && seen.insert(read).second) open.push_back(read);
    };
    visit(from, true);
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      if (node == to || seen.size() > most) return true;
      visit(node, false);
    }
    return false;
  }

  // Joins a cluster with one that it reads, as long as there are such.
  void join_all() {
    constexpr int kMostRounds = 8;  // a joined pair may be what led around another one
    Edges of = edges();
    for (int round = 0; round < kMostRounds && join_some(of); ++round) {
    }
  }

  bool join_some(Edges& of) {
    constexpr size_t kMostSeen = 256;
    bool joined = false;
    for (int node = 0; node < static_cast<int>(parent_.size()); ++node) {
      if (kind(node) == kNone) continue;
      for (const int made : read_by(node)) {
        const int later = root(node), earlier = root(made);
        if (kind(made) != kind(node) || later == earlier || leads_around(of, later, earlier, kMostSeen)) continue;
        join(of, later, earlier);
        joined = true;
      }
    }
    return joined;
  }

  void join(Edges& of, int later, int earlier) {
    parent_[at(earlier)] = later;
    std::set<int> reads = std::move(of[earlier]);
    of.erase(earlier);
    for (auto& [who, what] : of)
      if (what.erase(earlier) > 0) what.insert(later);
    of[later].merge(reads);
    of[later].erase(later);
  }

  const Graph& graph_;
  const std::vector<int>& kinds_;
  std::vector<int> parent_;
};

}  // namespace

std::vector<int> convex_clusters(const Graph& graph, const std::vector<int>& kinds) {
  return Clusters(graph, kinds).numbers();
}

}  // namespace sluice::graph
