// Keeps values on the disk between two uses that lie far apart, until as many bytes less are alive at once as
// options.spill_bytes says (ADR 81). Such a value has two short lives instead of a long one. Its first ends where the
// stream that made it waits for the disk to have it; its second begins where that stream lets the disk bring it back.
// Two tiny copies stand there, so that both are plain messages:
//
//   x -> spill -> copy (waits) ... copy (lets go) -> fetch -> x again -> later readers
#include "graph/ops/spill.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/lowering/lowering.h"
#include "compiler/lowering/places.h"
#include "compiler/lowering/windows.h"
#include "graph/ops/branches.h"
#include "graph/ops/movement.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::Placement;
using graph::ValueId;
using graph::ValueIds;
using graph::ValueKind;
using plan::StreamKind;

constexpr uint64_t kLeastSpilled = 4096;  // a smaller value costs more in messages than it gives in memory
constexpr uint64_t kFilePage = 4096;      // of the file
// Kernels that the stream runs while the disk writes, and while it reads.
constexpr int kMeanwhile = 1;

// A value that lies in a stream's arena. Positions count the stream's kernels.
struct Resident {
  ValueId value = kNoValue;
  uint64_t bytes = 0;
  std::vector<int> uses;  // the position of its maker, and those of its readers, ascending
  bool may_go = false;    // to the disk, once
};

struct Gap {
  int from = 0, to = 0;  // positions of two uses that follow each other
  // Those at which the value is on the disk alone.
  int first_free() const { return from + kMeanwhile + 1; }
  int end_free() const { return to - kMeanwhile; }
};

// The values of one stream, and which of them are to go.
class StreamValues {
 public:
  struct Move {
    ValueId value = kNoValue;
    Gap gap;
  };
  std::vector<Resident> lying;

  std::vector<Move> choose(int kernels, uint64_t less) {
    std::vector<uint64_t> alive(static_cast<size_t>(kernels), 0);
    for (const Resident& l : lying)
      for (int p = l.uses.front(); p <= l.uses.back(); ++p) alive[static_cast<size_t>(p)] += l.bytes;
    const uint64_t most = alive.empty() ? 0 : *std::max_element(alive.begin(), alive.end());
    const uint64_t wanted = most > less ? most - less : 0;
    std::vector<bool> least(alive.size(), false);  // no value may leave there any more
    std::vector<Move> moves;
    while (true) {
      int peak = -1;
      for (int p = 0; p < kernels; ++p)
        if (!least[static_cast<size_t>(p)] && alive[static_cast<size_t>(p)] > wanted &&
            (peak < 0 || alive[static_cast<size_t>(p)] > alive[static_cast<size_t>(peak)]))
          peak = p;
      if (peak < 0) return moves;
      const std::optional<Move> move = best_at(peak);
      if (!move) {
        least[static_cast<size_t>(peak)] = true;
        continue;
      }
      for (int p = move->gap.first_free(); p < move->gap.end_free(); ++p) alive[static_cast<size_t>(p)] -= taken_;
      moves.push_back(*move);
    }
  }

 private:
  // Takes the value out of the choice that frees most bytes for longest at a position.
  std::optional<Move> best_at(int position) {
    Resident* best = nullptr;
    Gap best_gap;
    double most = 0;
    for (Resident& l : lying) {
      if (!l.may_go || position <= l.uses.front() || position >= l.uses.back()) continue;
      const auto next = std::upper_bound(l.uses.begin(), l.uses.end(), position);
      const Gap gap{*std::prev(next), *next};
      if (position < gap.first_free() || position >= gap.end_free()) continue;
      const double frees = static_cast<double>(l.bytes) * (gap.end_free() - gap.first_free());
      if (frees <= most) continue;
      most = frees;
      best = &l;
      best_gap = gap;
    }
    if (best == nullptr) return std::nullopt;
    best->may_go = false;
    taken_ = best->bytes;
    return Move{best->value, best_gap};
  }

  uint64_t taken_ = 0;  // bytes of the value that best_at() has found last
};

class Spilling {
 public:
  Spilling(Graph& graph, PassContext& context)
      : graph_(graph), places_(context.target, context.options), root_(roots(graph)), nodes_(graph.nodes()) {
    position_.assign(nodes_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].op->view) continue;
      std::vector<int>& row = rows_[nodes_[i].placement];
      position_[i] = static_cast<int>(row.size());
      row.push_back(static_cast<int>(i));
    }
    find_values();
  }

  int run(uint64_t less) {
    for (auto& [placement, values] : values_) {
      const std::vector<int>& row = rows_.at(placement);
      for (const StreamValues::Move& chosen : values.choose(static_cast<int>(row.size()), less)) {
        Move& move = moves_.emplace(chosen.value, Move{chosen.gap.to, next_offset_}).first->second;
        const uint64_t bytes = graph_.spec(chosen.value).extent_bytes();
        next_offset_ = checked_add(next_offset_, (bytes + kFilePage - 1) / kFilePage * kFilePage);
        move.made = graph_.values()[chosen.value].index;
        waits_[row[static_cast<size_t>(chosen.gap.first_free())]].push_back(chosen.value);
        lets_go_[row[static_cast<size_t>(chosen.gap.end_free())]].push_back(chosen.value);
      }
    }
    if (!moves_.empty()) rewrite();
    return static_cast<int>(moves_.size());
  }

 private:
  struct Move {
    int next = 0;         // the position of the first reader that reads what is brought back
    uint64_t offset = 0;  // in the file
    int made = 0;         // the node that makes it
    ValueId handle = kNoValue;
  };

  bool may_lie(const Placement& placement) const {
    return Places::stream_kind(placement) == StreamKind::kCompute && Places::is_host(places_.writes(placement));
  }

  // Values in a stream's arena are no results, no new contents of variables, and nothing that other streams read.
  void find_values() {
    std::vector<bool> leaves(graph_.values().size(), false);
    for (const graph::Output& output : graph_.outputs()) leaves[static_cast<size_t>(root_[output.value])] = true;
    for (const graph::Variable& v : graph_.variables())
      if (v.update != kNoValue) leaves[static_cast<size_t>(root_[v.update])] = true;
    std::map<ValueId, std::vector<int>> readers;  // nodes
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].op->view) continue;
      for (const ValueId input : nodes_[i].inputs)
        if (input != kNoValue) readers[root_[input]].push_back(static_cast<int>(i));
    }
    for (const auto& [value, read_by] : readers) {
      const graph::ValueInfo& info = graph_.values()[value];
      if (info.kind != ValueKind::kNode || leaves[static_cast<size_t>(value)]) continue;
      const Node& maker = nodes_[info.index];
      if (!may_lie(maker.placement)) continue;
      Resident lying{value, graph_.spec(value).extent_bytes(), {position_[info.index]}, false};
      lying.may_go = lying.bytes >= kLeastSpilled && !maker.op->of_all;
      bool elsewhere = false;
      for (const int reader : read_by) {
        const Node& node = nodes_[reader];
        elsewhere = elsewhere || node.placement != maker.placement;
        lying.may_go = lying.may_go && node.every == maker.every && !node.op->of_all;
        if (lying.uses.back() != position_[reader]) lying.uses.push_back(position_[reader]);
      }
      if (!elsewhere) values_[maker.placement].lying.push_back(std::move(lying));
    }
  }

  // The stream of the disk: the rank's first host stream that nobody uses.
  Placement disk_of(const Placement& placement) const {
    const int rank = placement.device->rank;
    const DeviceId& host = Places::host_memory(rank).device;
    int index = 1;
    while (rows_.contains(Places::at(host, StreamKind::kHost, index))) ++index;
    return Places::at(host, StreamKind::kHost, index);
  }

  ValueId add(const OpDef& op, ValueId input, const Placement& placement, const Provenance& origin, int every,
              Attrs attrs = {}) {
    Node node;
    node.op = &op;
    node.inputs = {input};
    node.placement = placement;
    node.attrs = std::move(attrs);
    node.every = every;
    static_cast<Provenance&>(node) = origin;
    Graph& made = rewriter_->target();
    return made.nodes()[made.add_node(std::move(node))].outputs[0];
  }

  std::string function(const OpDef& op, const Move& move) const { return fmt::format("{}@{}", op.name, move.offset); }

  void spill_what(int node) {
    for (const ValueId output : nodes_[node].outputs) {
      const auto found = moves_.find(output);
      if (found == moves_.end()) continue;
      const OpDef& op = ops::spill_op();
      found->second.handle =
          add(op, (*rewriter_)[output], disk_of(nodes_[node].placement), nodes_[node], nodes_[node].every,
              {function(op, found->second), static_cast<int64_t>(found->second.offset)});
    }
  }

  void bring_back(ValueId value, const Node& reader) {
    Move& move = moves_.at(value);
    const Node& maker = nodes_[move.made];
    move.handle = add(ops::copy_op(), move.handle, maker.placement, reader, maker.every);
    const OpDef& op = ops::fetch_op();
    const ValueId again = add(op, move.handle, disk_of(maker.placement), reader, maker.every,
                              {function(op, move), static_cast<int64_t>(move.offset), TensorTypes{graph_.type(value)}});
    if (const Strides& strides = graph_.values()[value].strides; !strides.empty())
      rewriter_->target().set_strides(again, strides);
    again_[value] = again;
  }

  // The value that is brought back, or a view of it.
  ValueId again(ValueId value) {
    if (const auto known = again_.find(value); known != again_.end()) return known->second;
    Node view = nodes_[graph_.values()[value].index];
    view.inputs = {again(view.inputs[0])};
    view.outputs.clear();
    Graph& made = rewriter_->target();
    return again_[value] = made.nodes()[made.add_node(std::move(view))].outputs[0];
  }

  ValueId read(ValueId value, int reader) {
    if (value == kNoValue) return kNoValue;
    const auto move = moves_.find(root_[value]);
    return move == moves_.end() || position_[reader] < move->second.next ? (*rewriter_)[value] : again(value);
  }

  void take(int node) {
    ValueIds inputs;
    for (const ValueId input : nodes_[node].inputs) inputs.push_back(read(input, node));
    Graph& made = rewriter_->target();
    const int taken = made.take_node(graph_, node, std::move(inputs));
    for (size_t o = 0; o < nodes_[node].outputs.size(); ++o) {
      const ValueId old = nodes_[node].outputs[o], output = made.nodes()[taken].outputs[o];
      rewriter_->map(old, output);
      if (const Strides& strides = graph_.values()[old].strides; !strides.empty()) made.set_strides(output, strides);
    }
  }

  void rewrite() {
    rewriter_.emplace(graph_);
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      for (const ValueId value : waits_[i]) {
        Move& move = moves_.at(value);
        const Node& maker = nodes_[move.made];
        move.handle = add(ops::copy_op(), move.handle, maker.placement, maker, maker.every);
      }
      for (const ValueId value : lets_go_[i]) bring_back(value, nodes_[i]);
      if (nodes_[i].op->view)
        rewriter_->take(i);
      else
        take(i);
      spill_what(i);
    }
    graph_ = rewriter_->finish();
  }

  Graph& graph_;
  const Places places_;
  const std::vector<ValueId> root_;                      // per value
  const std::vector<Node> nodes_;                        // as they were; the rewriter takes the graph's own apart
  std::map<Placement, std::vector<int>> rows_;           // the kernels of each stream, in order
  std::vector<int> position_;                            // per node, in its row; -1 of views
  std::map<Placement, StreamValues> values_;             // that lie in the arena of a stream
  std::map<ValueId, Move> moves_;                        // by value
  std::map<int, std::vector<ValueId>> waits_, lets_go_;  // before a node
  std::map<ValueId, ValueId> again_;                     // what is brought back, and views of it, by what they are
  std::optional<graph::Rewriter> rewriter_;
  uint64_t next_offset_ = 0;
};

// Whether a step may leave some of the values out, or make them shorter: then what lies on the disk may be another
// step's.
bool may_vary(const Graph& graph) {
  const auto types = [&](const ValueIds& values) {
    std::vector<TensorType> all;
    for (const ValueId value : values) all.push_back(value == kNoValue ? TensorType{} : graph.type(value));
    return all;
  };
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    if (node.op == &ops::case_op() || node.op == &ops::esac_op()) return true;
    return node.op->varying != nullptr &&
           !node.op->varying(types(node.inputs), types(node.outputs), node.attrs).empty();
  });
}

}  // namespace

int spill(Graph& graph, PassContext& context) {
  const bool can = context.target.has_kernel(ops::spill_op().name, DeviceKind::kCpu);
  const CompileOptions& options = context.options;
  if (options.spill_bytes == 0 || !can || !options.stages.empty() || may_vary(graph)) return 0;
  return Spilling(graph, context).run(options.spill_bytes);
}

}  // namespace sluice::compiler
