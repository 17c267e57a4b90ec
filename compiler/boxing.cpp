#include "compiler/boxing.h"

#include <algorithm>

#include "compiler/boxing_path.h"
#include "compiler/collectives.h"
#include "compiler/rank_classes.h"
#include "graph/ops/comparison.h"
#include "graph/ops/creation.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {
namespace {

using enum Sbp::Kind;

// On one device every way to lie is the same.
Sbp effective(const Row& row) { return row.size() == 1 ? Sbp::broadcast() : row.sbp; }
bool is_row(const Spread& spread) { return spread.sbp.size() == 1; }
Row row_of(const Spread& spread) { return {spread.devices, spread.sbp[0]}; }

constexpr int kFew = 8;  // parts that are added up by a node each, which may become a part of others

class Boxer {
 public:
  Boxer(graph::GraphBuilder& builder, const TensorType& type, const Shards& shards, const Row& from, const Row& to,
        const Section* section)
      : builder_(builder), type_(type), shards_(shards), from_(from), to_(to), section_(section) {}

  Shards run() {
    const Sbp target = effective(to_);
    if (by_collectives()) return met();
    if (const std::optional<Row> middle = between()) {
      const Shards halfway = box_row(builder_, type_, shards_, from_, *middle, section_);
      return box_row(builder_, type_, halfway, *middle, to_, section_);
    }
    if (target.kind == kBroadcast && effective(from_).kind == kPartialSum && to_.size() > 2) return reduced_by_parts();
    Shards result;
    for (int t = 0; t < to_.size(); ++t) {
      if (!is_made(to_.devices[t], section_)) {
        result.emplace_back();
        continue;
      }
      if (target.kind == kSplit) result.push_back(part(t, target.axis));
      if (target.kind == kBroadcast) result.push_back(whole(t));
      if (target.kind == kPartialSum) result.push_back(section_ ? own_of_sum(t) : t == 0 ? whole(0) : zeros(t));
    }
    return result;
  }

 private:
  void at(const std::optional<DeviceId>& device) { builder_.context.placement.device = device; }
  const Value& shard(int s) const { return there(shards_, s, from_.devices[s]); }
  // Returns a shard that is there; all have one type.
  static const Value& any(const Shards& shards) {
    return *std::find_if(shards.begin(), shards.end(), [](const Value& v) { return v.defined(); });
  }
  // The copy that device `t` reads: the next one in turn, unless another lies on it, or on its rank.
  int near(int t) const {
    const int turn = t % from_.size();
    const std::optional<DeviceId>& device = to_.devices[t];
    const auto distance = [&](int s) { return distance_of(from_.devices[s], device, section_); };
    int best = turn;
    for (int s = 0; s < from_.size(); ++s)
      if (distance(s) < distance(best)) best = s;
    return best;
  }

  // In a section each rank does what the others of its class do, so some conversions take two steps, of which each is
  // by collectives, or from a rank to the one at its position.
  std::optional<Row> between() const {
    const Sbp source = effective(from_), target = effective(to_);
    if (section_ == nullptr || source.kind == kBroadcast) return {};
    const bool one_size = from_.size() == to_.size();
    bool same_ranks = one_size;
    for (int i = 0; same_ranks && i < to_.size(); ++i)
      same_ranks = rank_of(from_.devices[i]) == rank_of(to_.devices[i]);
    if (target.kind == kPartialSum && source != target) return Row{to_.devices, Sbp::broadcast()};
    if (same_ranks) return {};
    if (source.kind == kPartialSum)
      return Row{from_.devices, target.kind == kSplit && one_size ? target : Sbp::broadcast()};
    if (source == target && one_size) return {};
    return one_size ? Row{to_.devices, source} : Row{from_.devices, Sbp::broadcast()};
  }

  // The same ranks in their order, one device on each, that exchange parts of one size.
  bool by_collectives() const {
    if (from_.size() < 2 || from_.size() != to_.size()) return false;
    for (int i = 0; i < from_.size(); ++i) {
      const int rank = rank_of(to_.devices[i]);
      if (rank != rank_of(from_.devices[i]) || (i > 0 && rank <= rank_of(to_.devices[i - 1]))) return false;
    }
    const Sbp source = effective(from_), target = effective(to_);
    const auto even = [&](const Sbp& sbp) { return sbp.kind != kSplit || type_.shape[sbp.axis] % from_.size() == 0; };
    const bool travels = source.kind != kBroadcast && target.kind != kPartialSum && source != target;
    return travels && even(source) && even(target);
  }

  Shards met() {
    const Sbp source = effective(from_), target = effective(to_);
    if (target.kind == kSplit) return exchanged(shards_, target.axis);
    if (source.kind == kSplit) return joined(gathered(from_, shards_), any(shards_).shape(), source.axis);
    const int64_t elements = numel(type_.shape);
    if (to_.size() == 2 || elements % to_.size() != 0) return summed(gathered(from_, shards_), type_.shape);
    const Shards parts = exchanged(reshaped(from_, shards_, {elements}), 0);
    return reshaped(to_, gathered(to_, parts), type_.shape);
  }

  // All ranks' shards on each, flat, one behind the other.
  Shards gathered(const Row& where, const Shards& shards) {
    return meet(all_gather_op(), where, reshaped(where, shards, {numel(any(shards).shape())}));
  }

  // Part t of `axis` of all ranks' shards on the t-th: added up, or side by side.
  Shards exchanged(const Shards& shards, int axis) {
    Shape part = any(shards).shape();
    const int64_t length = part[axis] /= to_.size();
    Shards sent;
    for (int s = 0; s < from_.size(); ++s) {
      if (!shards[s].defined()) {
        sent.emplace_back();
        continue;
      }
      at(from_.devices[s]);
      std::vector<Value> parts;
      for (int t = 0; t < to_.size() && (axis > 0 || to_.size() <= kFew); ++t) {
        const Value cut = ops::slice_axis(shards[s], axis, t * length, (t + 1) * length);
        parts.push_back(ops::reshape(cut, {numel(part)}));
      }
      sent.push_back(axis == 0 ? ops::reshape(shards[s], {numel(shards[s].shape())}) : ops::concat(parts));
    }
    const Shards all = meet(all_to_all_op(), from_, sent);
    return effective(from_).kind == kSplit ? joined(all, part, effective(from_).axis) : summed(all, part);
  }

  // Joins parts one behind the other, on every device: side by side along `axis`, or as their sum in the order of
  // devices.
  Shards joined(const Shards& all, Shape part, int axis) {
    Shards result;
    for (int t = 0; axis > 0 && t < to_.size(); ++t)
      result.push_back(all[t].defined() ? ops::concat(parts_of(all[t], part, t), axis) : Value());
    if (axis > 0) return result;
    part[0] *= to_.size();
    return reshaped(to_, all, part);
  }
  Shards summed(const Shards& all, const Shape& part) {
    Shards result;
    for (int t = 0; t < to_.size(); ++t) result.push_back(all[t].defined() ? sum_of(all[t], part, t) : Value());
    return result;
  }

  // One call of all ranks.
  Shards meet(const OpDef& op, const Row& where, const Shards& operands) {
    Ints ranks;
    for (const auto& device : where.devices) ranks.push_back(rank_of(device));
    const auto meeting = static_cast<int64_t>(builder_.graph().nodes().size());
    Shards result;
    for (int s = 0; s < where.size(); ++s) {
      at(where.devices[s]);
      result.push_back(operands[s].defined() ? builder_.call(op, std::vector{operands[s]}, {ranks, meeting})[0]
                                             : Value());
    }
    return result;
  }

  Shards reshaped(const Row& where, const Shards& shards, const Shape& shape) {
    Shards result;
    for (int i = 0; i < where.size(); ++i) {
      at(where.devices[i]);
      result.push_back(shards[i].defined() ? ops::reshape(shards[i], shape.vec()) : Value());
    }
    return result;
  }
  // The sum of the parts of all ranks, in their order.
  Value sum_of(const Value& all, const Shape& part, int t) {
    if (from_.size() <= kFew) return sum(parts_of(all, part, t), t);
    at(to_.devices[t]);
    return ops::reshape(builder_.call(sum_parts_op(), std::vector{all}, {int64_t{from_.size()}})[0], part.vec());
  }
  // On the t-th device, which is left as the one where nodes are made.
  std::vector<Value> parts_of(const Value& all, const Shape& part, int t) {
    at(to_.devices[t]);
    std::vector<Value> result;
    const int64_t elements = numel(part);
    for (int s = 0; s < from_.size(); ++s)
      result.push_back(ops::reshape(ops::slice_axis(all, 0, s * elements, (s + 1) * elements), part.vec()));
    return result;
  }

  // Each device adds up one part for all.
  Shards reduced_by_parts() {
    int axis = 0;
    while (axis < type_.shape.rank() && type_.shape[axis] < to_.size()) ++axis;
    Shards parts, result;
    for (int t = 0; t < to_.size(); ++t) {
      SLUICE_CHECK_KIND(kUnsupported, is_made(to_.devices[t], section_),
                        "classes of ranks: a sum of {} in {} parts; {}", type_.str(), to_.size(), kWithoutClasses);
      parts.push_back(axis < type_.shape.rank() ? part(t, axis) : whole(t));
    }
    if (axis == type_.shape.rank()) return parts;
    for (int t = 0; t < to_.size(); ++t) {
      at(to_.devices[t]);
      result.push_back(ops::concat(parts, axis));
    }
    return result;
  }

  Value zeros(int t) {
    at(to_.devices[t]);
    return ops::zeros(type_.shape, type_.dtype);
  }

  // A part of a sum whose first device has the whole: that, or zeros. Each device asks which it is.
  Value own_of_sum(int t) {
    const Value& copy = shard(near(t));
    at(to_.devices[t]);
    const Value first = ops::full({}, t == 0 ? 1 : 0, DType::kBool);
    return ops::where(first, copy, ops::zeros({}, type_.dtype));
  }

  Value whole(int t) {
    const Sbp source = effective(from_);
    if (source.kind == kBroadcast) return shard(near(t));
    for (int s = 0; s < from_.size(); ++s) (void)shard(s);  // all must be there
    if (source.kind == kSplit) {
      at(to_.devices[t]);
      return ops::concat(shards_, source.axis);
    }
    return sum(shards_, t);
  }

  // Part `t` of `axis`.
  Value part(int t, int axis) {
    const auto [start, stop] = part_of(type_.shape[axis], to_.size(), t);
    const Sbp source = effective(from_);
    if (source.kind == kBroadcast) return cut(near(t), axis, start, stop);
    std::vector<Value> pieces;
    for (int s = 0; s < from_.size(); ++s) {
      int64_t low = start, high = stop;
      if (source.kind == kSplit && source.axis == axis) {  // what of it lies in shard s
        const auto [first, last] = part_of(type_.shape[axis], from_.size(), s);
        low = std::max(start, first) - first;
        high = std::min(stop, last) - first;
        if (low >= high) continue;
      }
      pieces.push_back(cut(s, axis, low, high));
    }
    if (source.kind == kPartialSum) return sum(pieces, t);
    if (pieces.size() == 1) return pieces[0];
    at(to_.devices[t]);
    return ops::concat(pieces, source.axis);
  }

  Value cut(int s, int axis, int64_t start, int64_t stop) {
    const Value& whole = shard(s);
    if (start == 0 && stop == whole.shape()[axis]) return whole;
    at(from_.devices[s]);
    return ops::slice_axis(whole, axis, start, stop);
  }

  Value sum(const std::vector<Value>& terms, int t) {
    at(to_.devices[t]);
    Value total = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) total = ops::add(total, terms[i]);
    return total;
  }

  graph::GraphBuilder& builder_;
  const TensorType& type_;
  const Shards& shards_;
  const Row& from_;
  const Row& to_;
  const Section* const section_;
};

}  // namespace

std::string Spread::str() const {
  if (off_mesh) return size() == 1 ? "one piece" : fmt::format("one piece on each of {} ranks", size());
  return sbp.str() + " on " + mesh.str();
}

Spread spread_over(const DeviceMesh& mesh, const NdSbp& sbp) {
  return {{mesh.devices().begin(), mesh.devices().end()}, sbp, false, mesh};
}

Spread off_mesh(const DeviceId& device, int ranks) {
  Spread spread{{std::nullopt}, Sbp::broadcast(), true, {}};
  if (ranks > 1) spread.devices.clear();
  for (int rank = 0; ranks > 1 && rank < ranks; ++rank)
    spread.devices.push_back(DeviceId{rank, device.kind, device.index});
  return spread;
}

const char* boxing_kind(const Spread& from, const Spread& to) {
  // Of several axes the kind is that of the one that changes; where more do, that of the worst.
  const auto worst = [](const Spread& spread) {
    const auto several = [&](Sbp::Kind kind) {
      for (int k = 0; k < spread.sbp.size(); ++k)
        if (spread.sbp[k].kind == kind && spread.shape()[static_cast<size_t>(k)] > 1) return true;
      return false;
    };
    return several(kPartialSum) ? kPartialSum : several(kSplit) ? kSplit : kBroadcast;
  };
  Sbp::Kind source = worst(from), target = worst(to);
  if (to.off_mesh) return source == kBroadcast ? "fetch" : source == kSplit ? "gather" : "reduce";
  if (from.off_mesh) return target == kSplit ? "scatter" : "broadcast";
  if (from.devices != to.devices) return "send";
  if (from.shape() != to.shape()) return "local";
  if (!is_row(from)) {
    int changed = -1, changes = 0;
    for (int k = 0; k < from.sbp.size(); ++k) {
      if (from.sbp[k] == to.sbp[k] || from.shape()[static_cast<size_t>(k)] == 1) continue;
      changed = k;
      ++changes;
    }
    if (changes == 0) return "local";
    if (changes == 1) {
      source = from.sbp[changed].kind;
      target = to.sbp[changed].kind;
    }
  }
  if (source == kBroadcast) return "local";
  if (source == kPartialSum) return target == kBroadcast ? "all_reduce" : "reduce_scatter";
  return target == kBroadcast ? "all_gather" : "all_to_all";
}

bool is_made(const std::optional<DeviceId>& device, const Section* section) {
  return section == nullptr || section->has(rank_of(device));
}

int distance_of(const std::optional<DeviceId>& from, const std::optional<DeviceId>& to, const Section* section) {
  if (from == to) return 0;
  if (rank_of(from) == rank_of(to)) return 1;
  return section != nullptr && section->position_of(rank_of(from)) == section->position_of(rank_of(to)) ? 2 : 3;
}

const Value& there(const Shards& shards, int i, const std::optional<DeviceId>& device) {
  const Value& shard = shards[static_cast<size_t>(i)];
  SLUICE_CHECK_KIND(kUnsupported, shard.defined(),
                    "classes of ranks: a part of rank {} goes to a rank at another position; {}", rank_of(device),
                    kWithoutClasses);
  return shard;
}

Shards box_row(graph::GraphBuilder& builder, const TensorType& type, const Shards& shards, const Row& from,
               const Row& to, const Section* section) {
  if (from.devices == to.devices && effective(from) == effective(to)) return shards;
  return Boxer(builder, type, shards, from, to, section).run();
}

Shards box(graph::GraphBuilder& builder, const TensorType& type, const Shards& shards, const Spread& from,
           const Spread& to, const Section* section, const std::vector<BoxingStep>* path) {
  const bool rows = is_row(from) && is_row(to);
  if (rows && from.devices == to.devices && effective(row_of(from)) == effective(row_of(to))) return shards;
  const graph::NodeContext outer = builder.context;
  builder.context.placement = {};
  if (rows) builder.context.module += fmt::format("{}{}", outer.module.empty() ? "" : "/", boxing_kind(from, to));
  Shards result =
      rows ? box_row(builder, type, shards, row_of(from), row_of(to), section)
           : box_along_path(builder, type, shards, from, path ? *path : boxing_path(type, from, to, section), section);
  builder.context = outer;
  return result;
}

}  // namespace sluice::compiler
