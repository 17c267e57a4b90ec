#include "compiler/boxing_path.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compiler/rank_classes.h"
#include "compiler/sbp_infer.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {
namespace {

using enum Sbp::Kind;

int64_t volume(const Spans& spans) {
  int64_t elements = 1;
  for (const auto& [start, stop] : spans) elements *= stop - start;
  return elements;
}
// What both have; empty where that is nothing.
std::optional<Spans> common(const Spans& a, const Spans& b) {
  Spans both;
  for (size_t d = 0; d < a.size(); ++d) {
    both.emplace_back(std::max(a[d].first, b[d].first), std::min(a[d].second, b[d].second));
    if (a[d] != b[d] && both[d].first >= both[d].second) return std::nullopt;  // a dimension may have no elements
  }
  return both;
}
std::vector<Spans> all_spans(const TensorType& type, const Spread& spread) {
  std::vector<Spans> spans;
  for (int i = 0; i < spread.size(); ++i) spans.push_back(spans_of(type.shape, spread.shape(), spread.sbp, i));
  return spans;
}
// Axes of one device are broadcasts: there every way to lie is the same.
Spread plain(Spread spread) {
  const MeshShape shape = spread.shape();
  for (int k = 0; k < spread.sbp.size(); ++k)
    if (shape[static_cast<size_t>(k)] == 1) spread.sbp[k] = Sbp::broadcast();
  return spread;
}
Spread with(Spread spread, int axis, const Sbp& sbp) {
  spread.sbp[axis] = sbp;
  return spread;
}
Spread without_sums(Spread spread) {
  for (int k = 0; k < spread.sbp.size(); ++k)
    if (spread.sbp[k].kind == kPartialSum) spread.sbp[k] = Sbp::broadcast();
  return spread;
}

// Can the value lie so: does every device get something.
bool fits(const TensorType& type, const MeshShape& mesh, const NdSbp& sbp) {
  std::vector<int64_t> least(type.shape.begin(), type.shape.end());
  for (int k = 0; k < sbp.size(); ++k) {
    if (sbp[k].kind != kSplit) continue;
    int64_t& size = least[static_cast<size_t>(sbp[k].axis)];
    size /= mesh[static_cast<size_t>(k)];
    if (size == 0) return false;
  }
  return true;
}

// Is every device's part of one size.
bool is_even(const TensorType& type, const MeshShape& mesh, const NdSbp& sbp) {
  std::vector<int64_t> parts(type.shape.begin(), type.shape.end());
  for (int k = 0; k < sbp.size(); ++k) {
    if (sbp[k].kind != kSplit) continue;
    int64_t& size = parts[static_cast<size_t>(sbp[k].axis)];
    if (size % mesh[static_cast<size_t>(k)] != 0) return false;
    size /= mesh[static_cast<size_t>(k)];
  }
  return true;
}

// Is one device's part of a value beside another device, or the host memory beside it.
bool beside(const std::optional<DeviceId>& a, const std::optional<DeviceId>& b, bool host) {
  return host ? rank_of(a) == rank_of(b) : a == b;
}

// Bytes that come to the devices of `to` from other ones.
double moved_bytes(const TensorType& type, const Spread& from, const Spread& to) {
  const std::vector<Spans> there = all_spans(type, from), here = all_spans(type, to);
  double elements = 0;
  for (int t = 0; t < to.size(); ++t) {
    std::set<Spans> known;  // what lies here already; parts are equal or apart
    for (int s = 0; s < from.size(); ++s) {
      if (!beside(from.devices[s], to.devices[t], to.off_mesh)) continue;
      if (const auto both = common(there[s], here[t])) known.insert(*both);
    }
    int64_t missing = volume(here[t]);
    for (const Spans& spans : known) missing -= volume(spans);
    elements += static_cast<double>(missing);
  }
  return elements * static_cast<double>(dtype_size(type.dtype));
}

// Bytes of a conversion along one axis: those of all of its lines.
double axis_bytes(const TensorType& type, const Spread& from, int axis, const Sbp& to) {
  const MeshShape shape = from.shape();
  const NdSbp& lies = from.sbp;
  const Spread rest = with(from, axis, Sbp::broadcast());
  double bytes = 0;
  for (int i = 0; i < from.size(); ++i) {
    if (coordinates(shape, i)[static_cast<size_t>(axis)] != 0) continue;
    const auto whole = static_cast<double>(volume(spans_of(type.shape, shape, rest.sbp, i)));
    const int n = shape[static_cast<size_t>(axis)];
    bytes += boxing_bytes(whole * static_cast<double>(dtype_size(type.dtype)), lies[axis], n, to, n, false);
  }
  return bytes;
}

class Search {
 public:
  Search(const TensorType& type, const Spread& from, const Spread& to, const Section* section)
      : section_(section),
        type_(type),
        from_(plain(from)),
        to_(plain(to)),
        arrival_(without_sums(to_)),
        one_mesh_(same_mesh(from_, to_)),
        same_devices_(from_.devices == to_.devices) {}

  std::vector<BoxingStep> run() {
    reach({0, from_.sbp.str()}, {}, from_, {});
    while (!open_.empty()) {
      const auto [cost, key] = *open_.begin();
      open_.erase(open_.begin());
      const State& state = states_.at(key);
      if (key.first == side(to_) && state.spread.sbp == to_.sbp) return path_to(key);
      leave(key, cost, state.spread);
    }
    fail(ErrorKind::kRuntime, "boxing: no way for {} from {} to {}; a broadcast must reach all", type_.str(),
         from_.str(), to_.str());
  }

 private:
  using Key = std::pair<int, std::string>;  // 0: on the mesh of `from`, 1: on that of `to`; and the sbp there
  struct Cost {
    double bytes = 0, between = 0;  // of which from mesh to mesh
    int steps = 0;
    auto operator<=>(const Cost&) const = default;
  };
  struct State {
    Spread spread;
    Cost cost;
    Key before;
    double bytes = 0;  // of the step to here
  };

  static bool same_mesh(const Spread& a, const Spread& b) {
    return a.off_mesh == b.off_mesh && a.devices == b.devices && a.shape() == b.shape();
  }
  int side(const Spread& spread) const { return one_mesh_ || &spread == &from_ ? 0 : 1; }

  void reach(const Key& key, const Cost& cost, Spread spread, const Key& before, double bytes = 0) {
    const auto known = states_.find(key);
    if (known != states_.end()) {
      if (known->second.cost <= cost) return;
      open_.erase({known->second.cost, key});
    }
    states_[key] = {std::move(spread), cost, before, bytes};
    open_.insert({cost, key});
  }

  void leave(const Key& key, const Cost& cost, const Spread& here) {
    if (!here.off_mesh)
      for (int k = 0; k < here.sbp.size(); ++k) change(key, cost, here, k);
    if (one_mesh_ || key.first == 1) return;
    // What is as it is in the end but for its mesh, or, on the same devices, as one other way to lie there.
    if (same_devices_ && all(here, kPartialSum)) {
      Spread sums = to_;
      for (int k = 0; k < sums.sbp.size(); ++k)
        if (sums.shape()[static_cast<size_t>(k)] > 1) sums.sbp[k] = Sbp::partial_sum();
      cross(key, cost, sums, 0);
    }
    if (here.sbp.any(kPartialSum)) return;
    if (!same_devices_) return send(key, cost, here);
    const std::vector<Spans> spans = all_spans(type_, here);
    for (const Spread& other : others()) {
      if (spans == all_spans(type_, other)) cross(key, cost, other, 0);
    }
  }

  // To other devices: as it has to lie there, unless that is for a section, where ranks send to their own position.
  // There it may also come as it lies here, and be converted there.
  void send(const Key& key, const Cost& cost, const Spread& here) {
    if (section_ == nullptr || comes_from_own(here, arrival_))
      cross(key, cost, arrival_, moved_bytes(type_, here, arrival_));
    if (section_ == nullptr || here.off_mesh || to_.off_mesh || here.shape() != to_.shape()) return;
    const Spread lies{to_.devices, here.sbp, false, to_.mesh};
    cross(key, cost, lies, moved_bytes(type_, here, lies));
  }
  // Is what each rank has to get at one of the same position.
  bool comes_from_own(const Spread& from, const Spread& to) const {
    const std::vector<Spans> there = all_spans(type_, from), here = all_spans(type_, to);
    std::map<int, std::vector<int>> at;
    for (int s = 0; s < from.size(); ++s) at[section_->position_of(rank_of(from.devices[s]))].push_back(s);
    for (int t = 0; t < to.size(); ++t) {
      const std::vector<int>& own = at[section_->position_of(rank_of(to.devices[t]))];
      if (std::none_of(own.begin(), own.end(), [&](int s) { return common(there[s], here[t]) == here[t]; }))
        return false;
    }
    return true;
  }

  static bool all(const Spread& spread, Sbp::Kind kind) {
    const MeshShape shape = spread.shape();
    for (int k = 0; k < spread.sbp.size(); ++k)
      if (shape[static_cast<size_t>(k)] > 1 && spread.sbp[k].kind != kind) return false;
    return true;
  }

  // All ways to lie on the mesh of `to` without sums.
  const std::vector<Spread>& others() {
    if (!others_.empty()) return others_;
    const MeshShape shape = to_.shape();
    std::vector<Spread> made = {arrival_};
    for (int k = 0; k < to_.sbp.size(); ++k) {
      std::vector<Spread> more;
      for (const Spread& spread : made) {
        more.push_back(with(spread, k, Sbp::broadcast()));
        for (int d = 0; shape[static_cast<size_t>(k)] > 1 && d < type_.shape.rank(); ++d)
          more.push_back(with(spread, k, Sbp::split(d)));
      }
      made = std::move(more);
    }
    for (Spread& spread : made)
      if (fits(type_, shape, spread.sbp)) others_.push_back(std::move(spread));
    return others_;
  }

  void cross(const Key& key, const Cost& cost, const Spread& to, double bytes) {
    reach({1, to.sbp.str()}, {cost.bytes + bytes, cost.between + bytes, cost.steps + 1}, to, key, bytes);
  }

  void change(const Key& key, const Cost& cost, const Spread& here, int axis) {
    const MeshShape shape = here.shape();
    if (shape[static_cast<size_t>(axis)] == 1) return;
    const auto nested = [&](const Sbp& sbp) {  // in this axis's parts, a later axis has parts of parts
      for (int later = axis + 1; sbp.kind == kSplit && later < here.sbp.size(); ++later)
        if (here.sbp[later] == sbp) return true;
      return false;
    };
    const Sbp& now = here.sbp[axis];
    if (nested(now)) return;
    std::vector<Sbp> ways = {Sbp::broadcast()};
    const bool last = key.first == side(to_);
    if (last && to_.sbp[axis].kind == kPartialSum) ways.push_back(Sbp::partial_sum());
    for (int d = 0; d < type_.shape.rank(); ++d) ways.push_back(Sbp::split(d));
    for (const Sbp& way : ways) {
      if (way == now || nested(way)) continue;
      const Spread next = with(here, axis, way);
      if (!fits(type_, shape, next.sbp) || (section_ != nullptr && !is_even(type_, shape, next.sbp))) continue;
      const double bytes = axis_bytes(type_, here, axis, way);
      reach({key.first, next.sbp.str()}, {cost.bytes + bytes, cost.between, cost.steps + 1}, next, key, bytes);
    }
  }

  std::vector<BoxingStep> path_to(Key key) const {
    std::vector<BoxingStep> steps;
    for (const Key start{0, from_.sbp.str()}; key != start; key = states_.at(key).before)
      steps.insert(steps.begin(), {states_.at(key).spread, states_.at(key).bytes});
    return steps;
  }

  const Section* const section_;
  const TensorType& type_;
  const Spread from_, to_;
  const Spread arrival_;  // `to` without partial sums
  const bool one_mesh_, same_devices_;
  std::vector<Spread> others_;
  std::map<Key, State> states_;
  std::set<std::pair<Cost, Key>> open_;
};

// Parts that come from the devices of one mesh to those of another.
class Mover {
 public:
  Mover(graph::GraphBuilder& builder, const TensorType& type, const Shards& shards, const Spread& from,
        const Spread& to, const Section* section)
      : section_(section),
        builder_(builder),
        shards_(shards),
        from_(from),
        to_(to),
        lies_(all_spans(type, from)),
        here_(all_spans(type, to)) {}

  Shards run() {
    Shards result;
    for (int t = 0; t < to_.size(); ++t)
      result.push_back(is_made(to_.devices[t], section_) ? assembled(t, here_[t], 0) : Value());
    return result;
  }

 private:
  // Cuts `wanted` where parts begin, dimension by dimension, and puts the pieces together on device `t`.
  Value assembled(int t, Spans wanted, int dim) {
    if (dim == static_cast<int>(wanted.size())) return piece(t, wanted);
    const auto d = static_cast<size_t>(dim);
    const auto [start, stop] = wanted[d];
    if (start == stop) return assembled(t, wanted, dim + 1);
    std::set<int64_t> bounds = {start, stop};
    for (const Spans& spans : lies_)
      for (const int64_t at : {spans[d].first, spans[d].second})
        if (at > start && at < stop) bounds.insert(at);
    std::vector<Value> pieces;
    for (auto low = bounds.begin(), high = std::next(low); high != bounds.end(); ++low, ++high) {
      wanted[d] = {*low, *high};
      pieces.push_back(assembled(t, wanted, dim + 1));
    }
    if (pieces.size() == 1) return pieces[0];
    builder_.context.placement.device = to_.devices[t];
    return ops::concat(pieces, dim);
  }

  // What lies within one part: of the copy that is nearest, in turn where several are.
  Value piece(int t, const Spans& wanted) {
    int best = -1, best_distance = 0;
    for (int i = 0; i < from_.size(); ++i) {
      const int s = (i + t) % from_.size();
      if (!common(lies_[s], wanted) || volume(*common(lies_[s], wanted)) < volume(wanted)) continue;
      const int distance = distance_of(from_.devices[s], to_.devices[t], section_);
      if (best < 0 || distance < best_distance) {
        best = s;
        best_distance = distance;
      }
    }
    Value value = there(shards_, best, from_.devices[best]);
    for (size_t d = 0; d < wanted.size(); ++d) {
      const auto [first, last] = lies_[best][d];
      if (wanted[d] == std::pair{first, last}) continue;
      builder_.context.placement.device = from_.devices[best];
      value = ops::slice_axis(value, static_cast<int>(d), wanted[d].first - first, wanted[d].second - first);
    }
    return value;
  }

  const Section* const section_;
  graph::GraphBuilder& builder_;
  const Shards& shards_;
  const Spread& from_;
  const Spread& to_;
  const std::vector<Spans> lies_, here_;
};

// One step along one axis: the lines in their order.
Shards along_axis(graph::GraphBuilder& builder, const TensorType& type, const Shards& shards, const Spread& from,
                  const Spread& to, int axis, const Section* section) {
  const MeshShape shape = from.shape();
  const Spread rest = with(from, axis, Sbp::broadcast());
  Shards result(shards.size());
  for (int i = 0; i < from.size(); ++i) {
    if (coordinates(shape, i)[static_cast<size_t>(axis)] != 0) continue;
    const std::vector<int> line = line_through(shape, axis, i);
    if (std::none_of(line.begin(), line.end(), [&](int at) { return is_made(from.devices[at], section); })) continue;
    Row row{{}, from.sbp[axis]};
    Shards parts;
    for (const int at : line) {
      row.devices.push_back(from.devices[at]);
      parts.push_back(shards[static_cast<size_t>(at)]);
    }
    TensorType whole = type;
    const Spans spans = spans_of(type.shape, shape, rest.sbp, i);
    for (int d = 0; d < type.shape.rank(); ++d)
      whole.shape[d] = spans[static_cast<size_t>(d)].second - spans[static_cast<size_t>(d)].first;
    const Shards made = box_row(builder, whole, parts, row, {row.devices, to.sbp[axis]}, section);
    for (size_t j = 0; j < line.size(); ++j) result[static_cast<size_t>(line[j])] = made[j];
  }
  return result;
}

}  // namespace

std::vector<int> line_through(const MeshShape& shape, int axis, int i) {
  int stride = 1;
  for (size_t k = static_cast<size_t>(axis) + 1; k < shape.size(); ++k) stride *= shape[k];
  const int n = shape[static_cast<size_t>(axis)], first = i - i / stride % n * stride;
  std::vector<int> line;
  for (int j = 0; j < n; ++j) line.push_back(first + j * stride);
  return line;
}

std::vector<BoxingStep> boxing_path(const TensorType& type, const Spread& from, const Spread& to,
                                    const Section* section) {
  return Search(type, from, to, section).run();
}

Shards box_along_path(graph::GraphBuilder& builder, const TensorType& type, Shards shards, const Spread& from,
                      const std::vector<BoxingStep>& path, const Section* section) {
  const std::string module = builder.context.module;
  Spread here = plain(from);
  for (const BoxingStep& step : path) {
    builder.context.module = fmt::format("{}{}{}", module, module.empty() ? "" : "/", boxing_kind(here, step.to));
    const bool one_mesh =
        here.off_mesh == step.to.off_mesh && here.devices == step.to.devices && here.shape() == step.to.shape();
    if (one_mesh) {
      int axis = 0;
      while (here.sbp[axis] == step.to.sbp[axis]) ++axis;
      shards = along_axis(builder, type, shards, here, step.to, axis, section);
    } else if (!here.sbp.any(kPartialSum)) {  // sums stay where they are
      shards = Mover(builder, type, shards, here, step.to, section).run();
    }
    here = step.to;
  }
  builder.context.module = module;
  return shards;
}

}  // namespace sluice::compiler
