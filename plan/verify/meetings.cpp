#include "plan/verify/meetings.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "plan/ranks.h"

namespace sluice::plan {
Meetings::Meetings(const Plan& plan, const std::vector<int>& repetitions, int periods)
    : plan_(plan),
      repetitions_(repetitions),
      periods_(periods),
      network_(plan),
      left_(repetitions),
      calls_in_(plan.actors.size()),
      meets_(plan.streams.size()),
      streams_(plan.streams.size()),
      stream_chains_(plan.streams.size()),
      emitted_(plan.registers.size()),
      released_(plan.edges.size()),
      in_place_(plan.edges.size(), -1),
      last_(plan.actors.size(), -1) {
  for (const auto& [group, actors] : callers_of_groups(plan)) {
    for (const int a : actors) calls_in_[a] = meets_[plan.actors[a].stream] = true;
  }
  for (const auto& [group, ranks] : ranks_of_groups(plan)) ranks_[group] = static_cast<int>(ranks.size());
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    // Initial tokens have no cause.
    if (!network_.adjacency().register_edges[r].empty()) emitted_[r].assign(plan.registers[r].initial_tokens, -1);
    if (plan.registers[r].in_place_of >= 0) in_place_[plan.registers[r].in_place_of] = static_cast<int>(r);
  }
  for (int& n : left_) n *= periods;
  run();
}

// Causes are a vector of counts, one per chain: entry c is the number of segments of chain c that must have come
// before. The union of two sets of causes is then the maximum of each entry, because a chain's segments come in its
// order.
void Meetings::join(std::vector<int>& to, const std::vector<int>& causes) {
  if (to.size() < causes.size()) to.resize(causes.size());
  for (size_t c = 0; c < causes.size(); ++c) to[c] = std::max(to[c], causes[c]);
}

// Adds the segments that freed the slot of `token`: its readers, and those of what was written in its place.
void Meetings::add_slot_causes(int reg, int64_t token, std::vector<int>& causes) const {
  const std::vector<int>& edges = network_.adjacency().register_edges[reg];
  const auto add = [&](int segment) {
    if (segment >= 0) join(causes, segments_[segment].causes);
  };
  if (edges.empty()) add(emitted_[reg][token]);
  for (const int e : edges) {
    add(released_[e][token]);
    if (in_place_[e] >= 0) add_slot_causes(in_place_[e], token, causes);
  }
}

// A stream is free only when every firing that began on it has ended.
void Meetings::add_stream_causes(int stream, std::vector<int>& causes) const {
  for (bool again = true; again;) {
    again = false;
    for (const int c : stream_chains_[stream]) {
      if (c >= static_cast<int>(causes.size()) || causes[c] == 0) continue;
      // The other segments of a firing follow its first in the same chain.
      int last = chains_[c][causes[c] - 1];
      if (segments_[last].next < 0) continue;
      while (segments_[last].next >= 0) last = segments_[last].next;
      join(causes, segments_[last].causes);
      again = true;
    }
  }
}

// Puts a segment at the end of a chain of its stream whose last segment is among its causes, or opens one.
void Meetings::place(int segment, int stream) {
  Segment& s = segments_[segment];
  // A later segment of a firing goes behind the one before it. A first segment may go behind any chain whose last
  // segment it waits for; if it waits for none, nothing orders it against them, and it needs a chain of its own.
  if (s.part > 0) s.chain = segments_[last_[s.actor]].chain;  // nothing else has begun on the stream since
  for (const int c : stream_chains_[stream]) {
    if (s.chain >= 0) break;
    if (c >= static_cast<int>(s.causes.size()) || s.causes[c] != static_cast<int>(chains_[c].size())) continue;
    s.chain = c;
  }
  if (s.chain < 0) {
    s.chain = static_cast<int>(chains_.size());
    chains_.emplace_back();
    stream_chains_[stream].push_back(s.chain);
  }
  s.position = static_cast<int>(chains_[s.chain].size());
  chains_[s.chain].push_back(segment);
  if (static_cast<int>(s.causes.size()) <= s.chain) s.causes.resize(s.chain + 1);
  s.causes[s.chain] = s.position + 1;
}

// Begins segment `part` of the firing that holds the stream.
void Meetings::open(Running& run, int part) {
  const int a = run.actor, stream = plan_.actors[a].stream;
  Segment s;
  s.actor = a;
  s.part = part;
  s.firing = static_cast<int64_t>(network_.rules[a].firings());
  // The firings of an actor come in order, and so do the segments of a firing.
  if (last_[a] >= 0) s.causes = segments_[last_[a]].causes;
  if (part > 0) {
    // A collective returns when all ranks have come to it: so what brought the others there is a cause of all that
    // follows it here.
    for (const int call : meetings_[calls_[segments_[last_[a]].call].meeting])
      join(s.causes, segments_[calls_[call].segment].causes);
  } else {
    for (const int e : network_.adjacency().in_edges[a]) {
      const Edge& edge = plan_.edges[e];
      for (int t = 0; t < edge.take; ++t) {
        // The firing reads tokens that it has taken now, or holds since an earlier firing.
        const int from = emitted_[edge.reg][s.firing / edge.hold * edge.take + t];
        if (from >= 0) join(s.causes, segments_[from].causes);
      }
    }
    for (const int r : network_.adjacency().out_registers[a]) {
      const Register& reg = plan_.registers[r];
      const int initial = network_.adjacency().register_edges[r].empty() ? 0 : reg.initial_tokens;
      // A token goes to the slot of the token that is `quota` before it, once all readers have given that one back.
      const int64_t before = initial + s.firing / reg.emit_every - reg.quota;
      if (before >= 0) add_slot_causes(r, before, s.causes);
    }
    if (meets_[stream]) add_stream_causes(stream, s.causes);
  }
  segments_.push_back(std::move(s));
  const int made = static_cast<int>(segments_.size()) - 1;
  if (part > 0) segments_[last_[a]].next = made;
  if (meets_[stream]) place(made, stream);
  last_[a] = run.segment = made;
}

void Meetings::close_call(Running& run, int kernel) {
  Call call;
  call.kernel = kernel;
  call.group = plan_.kernels[kernel].collective;
  call.rank = rank_of(plan_, run.actor);
  call.segment = run.segment;
  std::vector<int>& sequence = sequences_[{call.group, call.rank}];
  call.number = static_cast<int>(sequence.size());
  const int made = static_cast<int>(calls_.size());
  sequence.push_back(made);
  segments_[run.segment].call = made;
  calls_.push_back(call);
}

// To the next call, or to the end of the firing.
bool Meetings::advance(Running& run) {
  DirectDelivery host{network_, touched_};
  FiringRule& rule = network_.rules[run.actor];
  const int64_t firing = static_cast<int64_t>(rule.firings());
  const std::vector<Instr>& program = plan_.actors[run.actor].program;
  for (; run.pc < program.size(); ++run.pc) {
    const Instr& i = program[run.pc];
    if (i.kind == InstrKind::kEmit) {
      // Only the last firing of a group emits a token or returns what it holds; the others count.
      if ((firing + 1) % plan_.registers[i.index].emit_every == 0) emitted_[i.index].push_back(run.segment);
      rule.emit(network_.out_port(i.index), host);
    }
    if (i.kind == InstrKind::kRelease) {
      const Edge& edge = plan_.edges[i.index];
      if ((firing + 1) % edge.hold == 0) released_[i.index].insert(released_[i.index].end(), edge.take, run.segment);
      rule.release(network_.ends(i.index).in_port, host);
    }
    if (!is_call(i)) continue;
    if (!run.at_collective) {
      close_call(run, i.index);
      run.at_collective = true;
      return false;
    }
    run.at_collective = false;
    open(run, segments_[run.segment].part + 1);
  }
  rule.finish(host);
  touched_.push_back(run.actor);
  run = {};
  return true;
}

void Meetings::run() {
  for (int a = 0; a < network_.actors(); ++a) network_.rules[a].on_start(static_cast<uint64_t>(left_[a]));
  // Per stream: actors that may be able to fire, each at most once.
  std::vector<std::deque<int>> candidates(plan_.streams.size());
  std::vector<bool> queued(plan_.actors.size());
  touched_.resize(plan_.actors.size());
  std::iota(touched_.begin(), touched_.end(), 0);
  const auto queue_touched = [&] {
    for (const int a : touched_) {
      if (queued[a]) continue;
      queued[a] = true;
      candidates[plan_.actors[a].stream].push_back(a);
    }
    touched_.clear();
  };
  const auto start = [&](int s) {
    queue_touched();
    while (!candidates[s].empty()) {
      const int a = candidates[s].front();
      candidates[s].pop_front();
      queued[a] = false;
      if (left_[a] == 0 || !network_.rules[a].can_fire()) continue;
      network_.rules[a].begin();
      --left_[a];
      streams_[s] = {a, 0, false, -1};
      open(streams_[s], 0);
      advance(streams_[s]);
      return true;
    }
    return false;
  };
  const auto meet = [&] {
    std::map<int, std::vector<int>> there;  // by group: streams
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].actor >= 0)
        there[calls_[segments_[streams_[s].segment].call].group].push_back(static_cast<int>(s));
    }
    bool any = false;
    for (const auto& [group, waiting] : there) {
      // If two calls of one rank wait, the first counts, since their order forbids the second.
      std::map<int, int> first;
      for (const int s : waiting) {
        const int call = segments_[streams_[s].segment].call;
        const auto [it, fresh] = first.try_emplace(calls_[call].rank, s);
        if (!fresh && calls_[segments_[streams_[it->second].segment].call].number > calls_[call].number) it->second = s;
      }
      if (static_cast<int>(first.size()) != ranks_[group]) continue;
      const int meeting = static_cast<int>(meetings_.size());
      meetings_.emplace_back();
      for (const auto& [r, s] : first) {
        const int call = segments_[streams_[s].segment].call;
        calls_[call].meeting = meeting;
        meetings_.back().push_back(call);
      }
      for (const auto& [r, s] : first) advance(streams_[s]);
      any = true;
    }
    return any;
  };
  for (bool again = true; again;) {
    again = false;
    for (size_t s = 0; s < streams_.size(); ++s) {
      while (streams_[s].actor < 0 && start(static_cast<int>(s))) again = true;
    }
    again |= meet();
  }
  finished_ = std::all_of(left_.begin(), left_.end(), [](int n) { return n == 0; }) &&
              std::all_of(streams_.begin(), streams_.end(), [](const Running& r) { return r.actor < 0; });
}

bool Meetings::covers_all() const {
  // Actors that have nothing to do with one another need not wait for one another.
  std::vector<int> part(plan_.actors.size());
  std::iota(part.begin(), part.end(), 0);
  const auto root = [&](int a) {
    while (part[a] != a) a = part[a] = part[part[a]];
    return a;
  };
  for (const Edge& e : plan_.edges) part[root(e.consumer)] = root(plan_.registers[e.reg].producer);
  std::map<int, int> of_group;
  for (size_t a = 0; a < plan_.actors.size(); ++a) {
    for (const Instr& i : plan_.actors[a].program) {
      if (!is_call(i)) continue;
      const int other = of_group.try_emplace(plan_.kernels[i.index].collective, static_cast<int>(a)).first->second;
      part[root(static_cast<int>(a))] = root(other);
    }
  }
  // Per component and chain: how many segments contain all of the first period.
  std::map<int, std::map<int, int>> first;
  for (const Segment& s : segments_) {
    if (s.chain >= 0 && s.firing < repetitions_[s.actor]) {
      int& n = first[root(s.actor)][s.chain];
      n = std::max(n, s.position + 1);
    }
  }
  for (const Segment& s : segments_) {
    if (s.chain < 0 || s.part != 0 || s.firing < int64_t{repetitions_[s.actor]} * (periods_ - 1)) continue;
    for (const auto& [chain, n] : first[root(s.actor)]) {
      if (chain >= static_cast<int>(s.causes.size()) || s.causes[chain] < n) return false;
    }
  }
  return true;
}

}  // namespace sluice::plan
