#include "compiler/collective_buckets.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "compiler/collectives.h"
#include "compiler/pass.h"
#include "graph/ops/movement.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;

// The nodes of one call, one for each rank, which follow one another.
struct Meeting {
  int first = 0, count = 0;
  uint64_t bytes = 0;  // that a rank gives
};

class Fusion {
 public:
  Fusion(graph::Graph& graph, uint64_t most_bytes, int most_ops)
      : rewriter_(graph),
        builder_(rewriter_.target(), DeviceId{}),
        most_bytes_(most_bytes),
        most_ops_(static_cast<size_t>(most_ops)),
        bucket_of_(graph.nodes().size(), -1),
        done_(graph.nodes().size(), false),
        seen_(graph.nodes().size(), -1) {
    rewriter_.target().set_micro_batches(graph.micro_batches());
  }

  int run() {
    const ExecutorScope scope(builder_);
    choose();
    const int count = static_cast<int>(bucket_of_.size());
    for (int n = 0; n < count; ++n) {
      if (bucket_of_[n] >= 0 && n != last_of(buckets_[bucket_of_[n]])) continue;  // made with the last of its bucket
      if (!make(n)) waiting_.push_back(n);
    }
    SLUICE_CHECK_KIND(kRuntime, waiting_.empty(), "fuse_collectives: {} nodes wait for each other", waiting_.size());
    return fused_;
  }
  graph::Graph finish() { return rewriter_.finish(); }

 private:
  using Bucket = std::vector<Meeting>;
  const graph::Graph& source() const { return rewriter_.source(); }
  const Node& node(int n) const { return source().nodes()[static_cast<size_t>(n)]; }
  static int last_of(const Bucket& bucket) { return bucket.back().first + bucket.back().count - 1; }

  // Puts every collective in a bucket.
  void choose() {
    using Key = std::tuple<const OpDef*, Ints, DType, int, DeviceKind>;
    std::map<Key, int> open;  // the buckets that may take more
    const int count = static_cast<int>(bucket_of_.size());
    for (int n = 0; n < count;) {
      if (!is_collective(*node(n).op)) {
        ++n;
        continue;
      }
      Meeting meeting{n, 0, bytes_of(source().type(node(n).inputs[0]))};
      while (n < count && is_collective(*node(n).op) && meeting_of(node(n)) == meeting_of(node(meeting.first))) {
        ++meeting.count;
        ++n;
      }
      const Node& first = node(meeting.first);
      const TensorType& type = source().type(first.inputs[0]);
      const DeviceKind kind = first.placement.device.value_or(DeviceId{}).kind;
      const auto [place, fresh] = open.try_emplace(Key{first.op, ranks_of(first), type.dtype, first.every, kind}, -1);
      int& bucket = place->second;
      if (fresh || type.shape.rank() != 1 || !fits(bucket, meeting)) {
        bucket = static_cast<int>(buckets_.size());
        buckets_.emplace_back();
      }
      buckets_[bucket].push_back(meeting);
      for (int m = meeting.first; m < n; ++m) bucket_of_[m] = bucket;
    }
  }

  bool fits(int bucket, const Meeting& meeting) {
    uint64_t bytes = meeting.bytes;
    for (const Meeting& other : buckets_[bucket]) bytes += other.bytes;
    if (bytes > most_bytes_ || buckets_[bucket].size() >= most_ops_) return false;
    if (source().type(node(buckets_[bucket][0].first).inputs[0]).shape.rank() != 1) return false;
    return buckets_[bucket][0].count == meeting.count && !needs(meeting, bucket);
  }

  // Does anything that the meeting needs come of the bucket, also by way of what has become one with others?
  bool needs(const Meeting& meeting, int bucket) {
    std::vector<int> todo;
    const auto visit = [&](int n) {
      if (seen_[n] == meeting.first) return;
      seen_[n] = meeting.first;
      todo.push_back(n);
    };
    for (int m = 0; m < meeting.count; ++m) visit(meeting.first + m);
    while (!todo.empty()) {
      const int n = todo.back();
      todo.pop_back();
      if (bucket_of_[n] == bucket) return true;
      if (bucket_of_[n] >= 0)
        for (const Meeting& other : buckets_[bucket_of_[n]])
          for (int m = 0; m < other.count; ++m) visit(other.first + m);
      for (const ValueId input : node(n).inputs)
        if (input != kNoValue && source().values()[input].kind == ValueKind::kNode)
          visit(source().values()[input].index);
    }
    return false;
  }

  bool has_inputs(int n) const {
    return std::all_of(node(n).inputs.begin(), node(n).inputs.end(), [&](ValueId input) {
      return input == kNoValue || source().values()[input].kind != ValueKind::kNode ||
             done_[source().values()[input].index];
    });
  }

  // Makes a node, or the bucket whose last node it is, unless it has to wait for a bucket that is made later.
  bool make(int n) {
    if (bucket_of_[n] < 0) {
      const bool effects = node(n).op->effectful;
      const bool others = effects && std::any_of(waiting_.begin(), waiting_.end(), [&](int w) {
                            return w < n && bucket_of_[w] < 0 && node(w).op->effectful;
                          });
      if (others || !has_inputs(n)) return false;
      rewriter_.take(n);
      done_[n] = true;
      return true;
    }
    const Bucket& bucket = buckets_[bucket_of_[n]];
    for (const Meeting& meeting : bucket)
      for (int m = 0; m < meeting.count; ++m)
        if (!has_inputs(meeting.first + m)) return false;
    if (bucket.size() == 1)
      for (int m = 0; m < bucket[0].count; ++m) rewriter_.take(bucket[0].first + m);
    else
      fuse(bucket);
    for (const Meeting& meeting : bucket)
      for (int m = 0; m < meeting.count; ++m) done_[meeting.first + m] = true;
    flush();
    return true;
  }

  // Makes what has waited for the bucket that was just made, in order.
  void flush() {
    std::vector<int> before;
    before.swap(waiting_);
    for (const int n : before)
      if (!make(n)) waiting_.push_back(n);
    std::sort(waiting_.begin(), waiting_.end());
    if (waiting_.size() < before.size() && !waiting_.empty()) flush();
  }

  void fuse(const Bucket& bucket) {
    const int made = bucket[0].count;  // of the ranks that meet, those of which there are nodes
    const int ranks = static_cast<int>(ranks_of(node(bucket[0].first)).size());
    const bool exchanges = node(bucket[0].first).op == &all_to_all_op();
    std::vector<int64_t> parts;  // elements that a rank gives another, of each
    int64_t all = 0;
    for (const Meeting& meeting : bucket) {
      const int64_t elements = numel(source().type(node(meeting.first).inputs[0]).shape);
      parts.push_back(exchanges ? elements / ranks : elements);
      all += parts.back();
    }
    std::vector<Value> given;
    for (int r = 0; r < made; ++r) {
      at(bucket, r);
      std::vector<Value> pieces;
      for (int part = 0; part < (exchanges ? ranks : 1); ++part)
        for (size_t j = 0; j < bucket.size(); ++j) {
          const Value whole = builder_.value(rewriter_[node(bucket[j].first + r).inputs[0]]);
          pieces.push_back(exchanges ? ops::slice_axis(whole, 0, part * parts[j], (part + 1) * parts[j]) : whole);
        }
      given.push_back(ops::concat(pieces));
    }
    std::vector<Value> got;
    for (int r = 0; r < made; ++r) {
      at(bucket, r);
      const Node& last = node(bucket.back().first + r);
      got.push_back(builder_.call(*last.op, std::vector{given[static_cast<size_t>(r)]}, last.attrs)[0]);
    }
    for (int r = 0; r < made; ++r) {
      at(bucket, r);
      int64_t offset = 0;
      for (size_t j = 0; j < bucket.size(); ++j) {
        std::vector<Value> pieces;
        for (int part = 0; part < ranks; ++part)
          pieces.push_back(
              ops::slice_axis(got[static_cast<size_t>(r)], 0, part * all + offset, part * all + offset + parts[j]));
        rewriter_.map(node(bucket[j].first + r).outputs[0], builder_.id(ops::concat(pieces)));
        offset += parts[j];
      }
    }
    fused_ += static_cast<int>(bucket.size()) - 1;
  }

  // Nodes are made from now on where and as often as those of rank `r` run.
  void at(const Bucket& bucket, int r) {
    const Node& first = node(bucket[0].first + r);
    builder_.context = graph::Rewriter::context_of(first);
    builder_.context.module = fmt::format("bucket of {} {}", bucket.size(), first.op->name);
  }

  graph::Rewriter rewriter_;
  graph::GraphBuilder builder_;
  const uint64_t most_bytes_;
  const size_t most_ops_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;  // per node; -1: it is no collective
  std::vector<bool> done_;
  std::vector<int> seen_;     // per node: the meeting for which it was looked at last
  std::vector<int> waiting_;  // nodes behind buckets that are still to be made, ascending
  int fused_ = 0;
};

}  // namespace

int fuse_collectives(graph::Graph& graph, uint64_t most_bytes, int most_ops) {
  graph::Graph target;
  int fused = 0;
  {
    Fusion fusion(graph, most_bytes, most_ops);
    fused = fusion.run();
    target = fusion.finish();
  }
  graph = std::move(target);
  return fused;
}

}  // namespace sluice::compiler
