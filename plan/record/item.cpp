#include "plan/record/item.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace sluice::plan {
namespace {

class ItemFinder {
 public:
  ItemFinder(const Recording& recording, uint64_t step)
      : plan_(recording.plan), step_(step), timeline_(timeline_of(recording)), incoming_(plan_.actors.size()) {
    const std::vector<std::vector<TokenTimes>> tokens = tokens_of(recording);
    for (const TokenWay& way : ways_of(plan_, timeline_)) {
      const Fired &from = fired(plan_.registers[plan_.edges[way.edge].reg].producer, way.from),
                  &to = fired(plan_.edges[way.edge].consumer, way.to);
      if (from.step != step || to.step != step) continue;
      incoming_[plan_.edges[way.edge].consumer].push_back(flows_.size());
      flows_.push_back({way, std::min(made_at(tokens, way, from), to.begin_ns), to.begin_ns});
    }
  }

  ItemWay find(int sink) {
    ItemWay found;
    found.step = step_;
    int actor = sink < 0 ? last_sink() : sink;
    std::optional<int> firing = actor < 0 ? std::nullopt : last_firing(actor);
    SLUICE_CHECK(firing, "item: step {}: not recorded{}; {}", step_,
                 sink < 0 ? "" : fmt::format(" at '{}'", plan_.actors[sink].name), recorded_str());
    found.end_ns = fired(actor, *firing).end_ns;
    int64_t left_ns = found.end_ns;
    while (true) {
      ItemHop& hop = found.hops.emplace_back();
      hop.actor = actor;
      hop.firing = *firing;
      hop.begin_ns = fired(actor, *firing).begin_ns;
      hop.left_ns = left_ns;
      if (const ItemFlow* const flow = last_value(actor, *firing)) {
        hop.edge = flow->way.edge;
        hop.arrived_ns = flow->made_ns;
        actor = plan_.registers[plan_.edges[hop.edge].reg].producer;
        firing = flow->way.from;
      } else if (!is_started(plan_.actors[actor]) && of_step(actor, *firing - 1)) {
        hop.arrived_ns = fired(actor, --*firing).end_ns;  // it took a value then, and holds it
      } else {
        hop.arrived_ns = found.begin_ns = first_begin(actor);
        break;
      }
      left_ns = hop.arrived_ns;
    }
    std::ranges::reverse(found.hops);
    for (ItemHop& hop : found.hops) hop.did = between(hop.actor, hop.arrived_ns, hop.left_ns);
    found.flows = flows_;
    return found;
  }

 private:
  const Fired& fired(int actor, int firing) const { return timeline_.firings[actor][firing]; }
  bool of_step(int actor, int firing) const { return firing >= 0 && fired(actor, firing).step == step_; }

  int64_t made_at(const std::vector<std::vector<TokenTimes>>& tokens, const TokenWay& way, const Fired& from) const {
    const Register& reg = plan_.registers[plan_.edges[way.edge].reg];
    const uint64_t token =
        from.number / static_cast<uint64_t>(reg.emit_every) + static_cast<uint64_t>(reg.initial_tokens);
    const std::vector<TokenTimes>& all = tokens[plan_.edges[way.edge].reg];
    const auto it = std::ranges::lower_bound(all, token, {}, &TokenTimes::token);
    return it == all.end() || it->token != token ? from.end_ns : it->made_ns;
  }

  std::optional<int> last_firing(int actor) const {
    const std::vector<Fired>& all = timeline_.firings[actor];
    const auto it = std::ranges::upper_bound(all, step_, {}, &Fired::step);
    if (it == all.begin() || std::prev(it)->step != step_) return std::nullopt;
    return static_cast<int>(it - all.begin()) - 1;
  }
  int64_t first_begin(int actor) const {
    return std::ranges::lower_bound(timeline_.firings[actor], step_, {}, &Fired::step)->begin_ns;
  }
  int last_sink() const {
    int last = -1;
    int64_t last_ns = 0;
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a) {
      if (plan_.actors[a].role != ActorRole::kSink) continue;
      const std::optional<int> firing = last_firing(a);
      if (!firing || (last >= 0 && fired(a, *firing).end_ns <= last_ns)) continue;
      last = a;
      last_ns = fired(a, *firing).end_ns;
    }
    return last;
  }

  // The one that was made last among the step's values that the firing took.
  const ItemFlow* last_value(int actor, int firing) const {
    const ItemFlow* last = nullptr;
    for (const size_t f : incoming_[actor])
      if (flows_[f].way.to == firing && (last == nullptr || flows_[f].made_ns > last->made_ns)) last = &flows_[f];
    return last;
  }

  std::vector<Segment> between(int actor, int64_t from_ns, int64_t to_ns) const {
    std::vector<Segment> did;
    for (const Segment& s : timeline_.actors[actor]) {
      const int64_t from = std::max(from_ns, s.begin_ns), to = std::min(to_ns, s.end_ns);
      if (from < to) did.push_back({from, to, s.spent, s.who});
    }
    return did;
  }

  std::string recorded_str() const {
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t a = 0; a < plan_.actors.size(); ++a) {
      if (plan_.actors[a].role != ActorRole::kSink || timeline_.firings[a].empty()) continue;
      first = std::min(first, timeline_.firings[a].front().step);
      last = std::max(last, timeline_.firings[a].back().step);
    }
    if (first > last) return "no sink has fired while events were recorded";
    return fmt::format("sinks have fired for steps {} to {}", first, last);
  }

  const Plan& plan_;
  const uint64_t step_;
  const Timeline timeline_;
  std::vector<ItemFlow> flows_;
  std::vector<std::vector<size_t>> incoming_;  // per actor: flows to it
};

}  // namespace

ItemWay way_of_item(const Recording& recording, uint64_t step, int sink) {
  return ItemFinder(recording, step).find(sink);
}

}  // namespace sluice::plan
