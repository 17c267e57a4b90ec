#include "plan/record/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "plan/firing/firing_counts.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max(), kBefore = std::numeric_limits<int64_t>::min();

// A kernel, or a wait, within a firing.
struct Part {
  int64_t begin_ns = 0, end_ns = 0;
  Spent spent = Spent::kRun;
  int kernel = -1;
};

struct Firing : Fired {
  TraceCause cause;
  std::vector<Part> parts;
};

struct Busy {
  int64_t begin_ns = 0, end_ns = 0;
  int actor = 0;
};

class TimelineBuilder {
 public:
  explicit TimelineBuilder(const Recording& recording)
      : plan_(recording.plan),
        adjacency_(plan_),
        counts_(plan_),
        firings_(plan_.actors.size()),
        streams_(plan_.streams.size()),
        place_(plan_.kernels.size(), 0),
        in_place_(plan_.edges.size(), false) {
    for (const Actor& actor : plan_.actors) {
      int place = 0;
      for (const Instr& i : actor.program)
        if (i.kind == InstrKind::kRun) place_[i.index] = place++;
    }
    for (const Register& r : plan_.registers)
      if (r.in_place_of >= 0) in_place_[r.in_place_of] = true;
    collect(recording.trace.events);
  }

  Timeline build() {
    Timeline out;
    out.begin_ns = begin_ns_ <= end_ns_ ? begin_ns_ : 0;
    out.end_ns = begin_ns_ <= end_ns_ ? end_ns_ : 0;
    out.actors.resize(plan_.actors.size());
    out.firings.resize(plan_.actors.size());
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a) {
      segments_ = &out.actors[a];
      at_ns_ = out.begin_ns;
      fill(a, out.end_ns);
      for (const Firing& firing : firings_[a]) out.firings[a].push_back(firing);
    }
    return out;
  }

  std::vector<std::vector<TokenTimes>> tokens() {
    std::vector<std::vector<TokenTimes>> all(plan_.registers.size());
    for (size_t r = 0; r < all.size(); ++r) all[r] = tokens_of_register(static_cast<int>(r));
    return all;
  }

 private:
  std::vector<TokenTimes> tokens_of_register(int r) const {
    const Register& reg = plan_.registers[r];
    std::vector<TokenTimes> found;
    const std::vector<Firing>& firings = firings_[reg.producer];
    if (firings.empty()) return found;
    const uint64_t every = static_cast<uint64_t>(reg.emit_every), quota = static_cast<uint64_t>(reg.quota);
    const uint64_t initial = static_cast<uint64_t>(reg.initial_tokens);
    const uint64_t first = firings.front().number / every + initial, last = firings.back().number / every + initial;
    for (uint64_t token = first > quota ? first - quota : 0; token <= last; ++token) {
      TokenTimes times{token, kBefore, kBefore, freed_at(r, token)};
      if (token >= initial) {
        times.acquired_ns = begun_at(reg.producer, (token - initial) * every);
        times.made_ns = done_at(reg.producer, (token - initial + 1) * every - 1, InstrKind::kEmit, r);
      }
      if (times.acquired_ns != kNever && times.freed_ns != kBefore) found.push_back(times);
    }
    return found;
  }

  int64_t begun_at(int actor, uint64_t number) const {
    const std::vector<Firing>& firings = firings_[actor];
    const auto it = std::ranges::lower_bound(firings, number, {}, &Firing::number);
    return it == firings.end() ? kNever : it->number == number ? it->begin_ns : kBefore;
  }

  // When the slot of a token came back: its last reader has released it, and so have those of registers in its place.
  int64_t freed_at(int r, uint64_t token) const {
    int64_t last = kBefore;
    for (const int e : adjacency_.register_edges[r]) {
      const Edge& edge = plan_.edges[e];
      const auto hold = static_cast<uint64_t>(edge.hold), take = static_cast<uint64_t>(edge.take);
      const uint64_t firing = token / take * hold + hold - 1;
      int64_t at = done_at(edge.consumer, firing, InstrKind::kRelease, e);
      for (const int other : adjacency_.out_registers[edge.consumer]) {
        const Register& reg = plan_.registers[other];
        if (reg.in_place_of != e) continue;
        const uint64_t its = firing / static_cast<uint64_t>(reg.emit_every) + static_cast<uint64_t>(reg.initial_tokens);
        at = std::max(at, freed_at(other, its));
      }
      last = std::max(last, at);
    }
    return last;
  }

  // Events by stream in the order of their ends: a firing's own come before it.
  void collect(const std::vector<TraceEvent>& events) {
    std::vector<std::vector<Part>> parts(plan_.actors.size());
    for (const TraceEvent& e : events) {
      if (e.actor < 0 || e.left_out) continue;
      if (e.wait || e.kernel >= 0) {
        Spent spent = e.cause.kind == TraceCause::Kind::kCores ? Spent::kCores : Spent::kDevice;
        if (!e.wait) spent = plan_.kernels[e.kernel].collective >= 0 ? Spent::kRanks : Spent::kRun;
        parts[e.actor].push_back({e.begin_ns, e.end_ns, spent, e.kernel});
        continue;
      }
      Firing firing;
      firing.step = e.step;
      firing.number = counts_.after(e.actor, e.step) + static_cast<uint64_t>(e.firing);
      firing.begin_ns = e.begin_ns;
      firing.end_ns = e.end_ns;
      firing.cause = e.cause;
      for (const Part& part : parts[e.actor])
        if (part.begin_ns >= e.begin_ns && part.end_ns <= e.end_ns) firing.parts.push_back(part);
      parts[e.actor].clear();
      std::ranges::stable_sort(firing.parts, {}, &Part::begin_ns);
      begin_ns_ = std::min(begin_ns_, e.begin_ns);
      end_ns_ = std::max(end_ns_, e.end_ns);
      streams_[plan_.actors[e.actor].stream].push_back({e.begin_ns, e.end_ns, e.actor});
      firings_[e.actor].push_back(std::move(firing));
    }
    for (auto& firings : firings_) std::ranges::stable_sort(firings, {}, &Firing::number);
    for (auto& busy : streams_) std::ranges::stable_sort(busy, {}, &Busy::begin_ns);
  }

  void add(int64_t to_ns, Spent spent, int who) {
    to_ns = std::max(to_ns, at_ns_);
    if (to_ns == at_ns_) return;
    segments_->push_back({at_ns_, to_ns, spent, who});
    at_ns_ = to_ns;
  }

  // To `to_ns`: what its stream did for others meanwhile, and in between `rest`.
  void add_beside_stream(int actor, int64_t to_ns, Spent rest, int who) {
    const std::vector<Busy>& busy = streams_[plan_.actors[actor].stream];
    auto it = std::ranges::upper_bound(busy, at_ns_, {}, &Busy::begin_ns);
    if (it != busy.begin()) --it;
    for (; it != busy.end() && it->begin_ns < to_ns; ++it) {
      if (it->actor == actor || it->end_ns <= at_ns_) continue;
      add(std::min(it->begin_ns, to_ns), rest, who);
      add(std::min(it->end_ns, to_ns), Spent::kStream, it->actor);
    }
    add(to_ns, rest, who);
  }

  void fill(int actor, int64_t end_ns) {
    const Firing* before = nullptr;
    for (const Firing& firing : firings_[actor]) {
      if (before != nullptr && firing.number != before->number + 1) {
        add(firing.begin_ns, Spent::kLost, -1);
      } else {
        wait_for(actor, firing.number, firing.cause, firing.begin_ns);
      }
      for (const Part& part : firing.parts) {
        add(part.begin_ns, Spent::kHost, -1);
        add(part.end_ns, part.spent, part.kernel);
      }
      add(firing.end_ns, Spent::kHost, -1);
      before = &firing;
    }
    last_wait(actor, before == nullptr ? 0 : before->number + 1, end_ns);
  }

  // From the end of the firing before to the begin of this one.
  void wait_for(int actor, uint64_t number, const TraceCause& cause, int64_t begin_ns) {
    std::optional<int64_t> ready;
    Spent spent = Spent::kInput;
    int who = -1;
    switch (cause.kind) {
      case TraceCause::Kind::kData:
        who = cause.index;
        ready = data_at(who, number);
        break;
      case TraceCause::Kind::kCredit:
        spent = Spent::kCredit;
        who = cause.index;
        ready = slot_at(who, number);
        break;
      case TraceCause::Kind::kStart: break;
      default: ready = at_ns_;
    }
    if (!ready || *ready == kNever) {
      add_beside_stream(actor, begin_ns, spent, who);
      return;
    }
    add(std::min(*ready, begin_ns), spent, who);
    add_beside_stream(actor, begin_ns, Spent::kHost, -1);
  }

  // Behind the last firing that was recorded: for what the next one lacks.
  void last_wait(int actor, uint64_t number, int64_t end_ns) {
    for (const int e : adjacency_.in_edges[actor]) {
      if (const auto at = data_at(e, number); at && *at == kNever) return add(end_ns, Spent::kInput, e);
    }
    for (const int r : adjacency_.out_registers[actor]) {
      if (const auto at = slot_at(r, number); at && *at == kNever) return add(end_ns, Spent::kCredit, r);
    }
    add_beside_stream(actor, end_ns, is_started(plan_.actors[actor]) ? Spent::kInput : Spent::kHost, -1);
  }

  // When the instruction of that firing took effect: at the end of the last kernel before it. kBefore: before anything
  // was recorded; kNever: behind it.
  int64_t done_at(int actor, uint64_t number, InstrKind kind, int index) const {
    const std::vector<Firing>& firings = firings_[actor];
    const auto it = std::ranges::lower_bound(firings, number, {}, &Firing::number);
    if (it == firings.end()) return kNever;
    if (it->number != number) return kBefore;
    int kernels = 0;
    for (const Instr& i : plan_.actors[actor].program) {
      if (i.kind == kind && i.index == index) break;
      kernels += i.kind == InstrKind::kRun;
    }
    int64_t at = it->begin_ns;
    for (const Part& part : it->parts) {
      if (part.kernel >= 0 && place_[part.kernel] < kernels) at = part.end_ns;
    }
    return at;
  }

  // When the last token came that firing `number` takes from the edge; nothing: it takes none.
  std::optional<int64_t> data_at(int e, uint64_t number) const {
    const Edge& edge = plan_.edges[e];
    const Register& reg = plan_.registers[edge.reg];
    const auto hold = static_cast<uint64_t>(edge.hold), take = static_cast<uint64_t>(edge.take);
    if (number % hold != 0) return std::nullopt;
    const uint64_t tokens = (number / hold + 1) * take, initial = static_cast<uint64_t>(reg.initial_tokens);
    if (tokens <= initial) return kBefore;
    return done_at(reg.producer, (tokens - initial) * static_cast<uint64_t>(reg.emit_every) - 1, InstrKind::kEmit,
                   edge.reg);
  }

  // When the slot came back that firing `number` writes; nothing: it needs none, or it is one that registers share.
  std::optional<int64_t> slot_at(int r, uint64_t number) const {
    const Register& reg = plan_.registers[r];
    const auto every = static_cast<uint64_t>(reg.emit_every);
    if (number % every != 0 || reg.in_place_of >= 0) return std::nullopt;
    const uint64_t token = number / every + static_cast<uint64_t>(reg.initial_tokens);
    if (token < static_cast<uint64_t>(reg.quota)) return kBefore;
    int64_t last = kBefore;
    for (const int e : adjacency_.register_edges[r]) {
      if (in_place_[e]) return std::nullopt;
      const Edge& edge = plan_.edges[e];
      const auto hold = static_cast<uint64_t>(edge.hold), take = static_cast<uint64_t>(edge.take);
      const uint64_t firing = (token - static_cast<uint64_t>(reg.quota)) / take * hold + hold - 1;
      last = std::max(last, done_at(edge.consumer, firing, InstrKind::kRelease, e));
    }
    return last;
  }

  const Plan& plan_;
  const Adjacency adjacency_;
  const FiringCounts counts_;
  std::vector<std::vector<Firing>> firings_;  // per actor
  std::vector<std::vector<Busy>> streams_;
  std::vector<int> place_;      // per kernel: of those of its actor, which one
  std::vector<bool> in_place_;  // per edge: a register shares its slots
  int64_t begin_ns_ = kNever, end_ns_ = kBefore;
  std::vector<Segment>* segments_ = nullptr;  // of the actor that is filled in, up to `at_ns_`
  int64_t at_ns_ = 0;
};

}  // namespace

const char* spent_name(Spent spent) {
  constexpr const char* kNames[] = {"run", "ranks", "input", "credit", "stream", "cores", "device", "host", "lost"};
  static_assert(std::size(kNames) == kSpent);
  return kNames[static_cast<int>(spent)];
}

namespace {

void check_rates(const Recording& recording) {
  VerifyReport report;
  verify_structure(recording.plan, report);
  if (report.ok()) verify_sizes(recording.plan, report);
  if (report.ok()) verify_rates(recording.plan, report);
  SLUICE_CHECK(report.ok(), "recording: its plan does not hold: {}", report.problems[0].text);
}

}  // namespace

Timeline timeline_of(const Recording& recording) {
  check_rates(recording);
  return TimelineBuilder(recording).build();
}

std::vector<std::vector<TokenTimes>> tokens_of(const Recording& recording) {
  check_rates(recording);
  return TimelineBuilder(recording).tokens();
}

std::vector<TokenWay> ways_of(const Plan& plan, const Timeline& timeline) {
  const auto place = [&](int actor, uint64_t number) {
    const std::vector<Fired>& firings = timeline.firings[actor];
    const auto it = std::ranges::lower_bound(firings, number, {}, &Fired::number);
    return it == firings.end() || it->number != number ? -1 : static_cast<int>(it - firings.begin());
  };
  std::vector<TokenWay> ways;
  for (size_t e = 0; e < plan.edges.size(); ++e) {
    const Edge& edge = plan.edges[e];
    const Register& reg = plan.registers[edge.reg];
    const auto hold = static_cast<uint64_t>(edge.hold), take = static_cast<uint64_t>(edge.take);
    const auto every = static_cast<uint64_t>(reg.emit_every), initial = static_cast<uint64_t>(reg.initial_tokens);
    const std::vector<Fired>& readers = timeline.firings[edge.consumer];
    for (size_t to = 0; to < readers.size(); ++to) {
      if (readers[to].number % hold != 0) continue;
      for (uint64_t i = 0; i < take; ++i) {
        const uint64_t token = readers[to].number / hold * take + i;
        const int from = token < initial ? -1 : place(reg.producer, (token - initial + 1) * every - 1);
        if (from >= 0) ways.push_back({static_cast<int>(e), from, static_cast<int>(to)});
      }
    }
  }
  return ways;
}

}  // namespace sluice::plan
