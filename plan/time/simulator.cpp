#include "plan/time/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <queue>

#include "plan/firing/network.h"
#include "plan/ranks.h"
#include "plan/time/cores.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

// Why a firing began when it did.
struct Cause {
  CriticalHop::Reason reason = CriticalHop::Reason::kStart;
  int reg = -1;
  int firing = -1;  // index in Simulation::firings of the one that was waited for
};

struct Event {
  enum class Kind : uint8_t { kContinue, kReady, kAck };
  double time = 0;
  int64_t order = 0;  // first come, first served
  Kind kind = Kind::kContinue;
  int index = 0;  // kContinue: actor; else edge
  int slot = 0;
  int from = 0;  // firing that sent it
  bool operator>(const Event& o) const { return std::pair(time, order) > std::pair(o.time, o.order); }
};

class Simulator {
 public:
  Simulator(const Plan& plan, const SimulateOptions& options)
      : plan_(plan),
        options_(options),
        repetitions_(repetition_vector(plan)),
        network_(plan),
        actors_(plan.actors.size()),
        streams_(plan.streams.size()) {
    result_.peak_slots.resize(plan.registers.size());
    result_.stream_busy_ns.resize(plan.streams.size());
    for (size_t r = 0; r < plan.registers.size(); ++r) result_.peak_slots[r] = plan.registers[r].initial_tokens;
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      starts_ |= is_started(plan.actors[a]);
      if (plan.actors[a].role == ActorRole::kSink) sinks_.push_back(static_cast<int>(a));
    }
    if (starts_) steps_of_period_ = steps_of_period(plan, repetitions_);
    for (const auto& [group, ranks] : ranks_of_groups(plan)) {
      for (const int rank : ranks) groups_[group][rank];
    }
    if (options.cores <= 0) return;
    cores_of_kernels_ = cores_of_kernels(plan);
    for (const Stream& stream : plan.streams) pools_.try_emplace(stream.device.rank, options.cores);
  }

  Simulation run() {
    to_submit_ = options_.steps;
    const bool limited = options_.in_flight > 0 && !sinks_.empty() && starts_;
    submit(limited ? std::min(options_.in_flight, to_submit_) : to_submit_);
    for (int a = 0; a < network_.actors(); ++a) enable(a, {});
    for (;;) {
      start_streams();
      if (!pools_.empty() && (events_.empty() || events_.top().time > now_) && rest_streams()) continue;
      if (events_.empty()) break;
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      handle(event);
    }
    for (const SimFiring& f : result_.firings) result_.total_ns = std::max(result_.total_ns, f.end_ns);
    find_blocked();
    find_period();
    return std::move(result_);
  }

 private:
  struct ActorState {
    bool queued = false;  // on its stream's queue or running
    double enabled_ns = 0;
    Cause cause;
    size_t pc = 0;
    int firing = -1;      // running: index in firings
    int call = -1;        // in a collective: index in kernels
    double waits_ns = 0;  // for cores: since when
  };
  struct StreamState {
    std::deque<int> queue;
    bool busy = false;
    double free_ns = 0;
    int last = -1;  // firing
    int held = 0;   // cores
  };

  void submit(int steps) {
    to_submit_ -= steps;
    for (size_t a = 0; a < plan_.actors.size(); ++a) {
      const Actor& actor = plan_.actors[a];
      if (is_started(actor))
        network_.rules[a].on_start(static_cast<uint64_t>(steps) * static_cast<uint64_t>(actor.starts));
    }
  }

  void enable(int a, const Cause& cause) {
    ActorState& actor = actors_[a];
    if (actor.queued || !network_.rules[a].can_fire()) return;
    actor.queued = true;
    actor.enabled_ns = now_;
    actor.cause = cause;
    streams_[plan_.actors[a].stream].queue.push_back(a);
  }

  // Sends at the end of a hop's latency; `from` is the running firing.
  struct Host {
    Simulator& sim;
    int actor;
    void ready(int edge, int slot) {
      sim.send(Event::Kind::kReady, edge, slot, actor, sim.network_.ends(edge).consumer);
    }
    void ack(int edge, int slot) { sim.send(Event::Kind::kAck, edge, slot, actor, sim.network_.ends(edge).producer); }
    void end(int) {}
  };
  void send(Event::Kind kind, int edge, int slot, int from, int to) {
    const bool crosses = plan_.actors[from].stream != plan_.actors[to].stream;
    const int firing = actors_[from].firing >= 0 ? actors_[from].firing : last_firing_;
    events_.push({now_ + (crosses ? options_.message_ns : 0), order_++, kind, edge, slot, firing});
  }

  void handle(const Event& event) {
    if (event.kind == Event::Kind::kContinue) {
      advance(event.index);
      return;
    }
    const Network::Ends& ends = network_.ends(event.index);
    const int reg = plan_.edges[event.index].reg;
    last_firing_ = event.from;
    if (event.kind == Event::Kind::kReady) {
      Host host{*this, ends.consumer};
      network_.rules[ends.consumer].on_ready(ends.in_port, event.slot, host);
      enable(ends.consumer, {CriticalHop::Reason::kData, reg, event.from});
    } else {
      Host host{*this, ends.producer};
      ++network_.acks[event.index];
      network_.rules[ends.producer].on_ack(ends.out_port, event.slot, host);
      enable(ends.producer, {CriticalHop::Reason::kCredit, reg, event.from});
    }
  }

  void start_streams() {
    for (size_t s = 0; s < streams_.size(); ++s) {
      StreamState& stream = streams_[s];
      if (stream.busy || stream.queue.empty()) continue;
      const int a = stream.queue.front();
      stream.queue.pop_front();
      begin(a, stream);
    }
  }

  void begin(int a, StreamState& stream) {
    ActorState& actor = actors_[a];
    FiringRule& rule = network_.rules[a];
    Cause cause = actor.cause;
    if (stream.last >= 0 && stream.free_ns >= now_ && actor.enabled_ns <= stream.free_ns &&
        cause.firing != stream.last) {
      cause = {CriticalHop::Reason::kStream, -1, stream.last};
    }
    if (stream.held > 0 && pools_.at(rank_of(plan_, a)).contended()) give_cores(stream, a, stream.last);
    actor.firing = static_cast<int>(result_.firings.size());
    actor.pc = 0;
    causes_.push_back(cause);
    result_.firings.push_back({a, rule.firings(), now_, now_, {a, actor.cause.reason, actor.cause.reg}});
    rule.begin();
    for (size_t port = 0; port < network_.adjacency().out_registers[a].size(); ++port) {
      const int r = network_.adjacency().out_registers[a][port];
      int& peak = result_.peak_slots[r];
      peak = std::max(peak, plan_.registers[r].quota - rule.free_slots(static_cast<int>(port)));
    }
    stream.busy = true;
    events_.push({now_ + options_.firing_ns, order_++, Event::Kind::kContinue, a, 0, 0});
  }

  // Runs the program to the next kernel that takes time.
  void advance(int a) {
    ActorState& actor = actors_[a];
    FiringRule& rule = network_.rules[a];
    Host host{*this, a};
    const std::vector<Instr>& program = plan_.actors[a].program;
    while (actor.pc < program.size()) {
      const Instr& i = program[actor.pc++];
      if (i.kind == InstrKind::kEmit) rule.emit(network_.out_port(i.index), host);
      if (i.kind == InstrKind::kRelease) rule.release(network_.ends(i.index).in_port, host);
      if (i.kind != InstrKind::kRun) continue;
      if (!has_cores(a, i.index)) {
        --actor.pc;
        return;
      }
      const double cost =
          options_.cost ? options_.cost(i.index, result_.firings[actor.firing].firing) : plan_.kernels[i.index].cost_ns;
      result_.kernels.push_back({i.index, actor.firing, now_, now_ + cost, now_});
      if (plan_.kernels[i.index].collective >= 0) {
        meet(a, plan_.kernels[i.index].collective);
        return;
      }
      if (cost > 0) {
        events_.push({now_ + cost, order_++, Event::Kind::kContinue, a, 0, 0});
        return;
      }
    }
    rule.finish(host);
    StreamState& stream = streams_[plan_.actors[a].stream];
    SimFiring& firing = result_.firings[actor.firing];
    firing.end_ns = now_;
    result_.stream_busy_ns[plan_.actors[a].stream] += firing.end_ns - firing.begin_ns;
    stream.busy = false;
    stream.free_ns = now_;
    stream.last = actor.firing;
    const int done = actor.firing;
    actor.queued = false;
    actor.firing = -1;
    if (plan_.actors[a].role == ActorRole::kSink) answered(done);
    enable(a, {CriticalHop::Reason::kStream, -1, done});
  }

  // A sink has fired. When all have, steps are answered, and as many more may come.
  void answered(int firing) {
    if (to_submit_ == 0) return;
    int64_t done = options_.steps;
    for (const int sink : sinks_)
      done =
          std::min(done, static_cast<int64_t>(network_.rules[sink].firings()) * steps_of_period_ / repetitions_[sink]);
    const int64_t submitted = options_.steps - to_submit_;
    const int64_t more = std::min<int64_t>(to_submit_, done + options_.in_flight - submitted);
    if (more <= 0) return;
    submit(static_cast<int>(more));
    for (size_t s = 0; s < plan_.actors.size(); ++s) {
      if (is_started(plan_.actors[s])) enable(static_cast<int>(s), {CriticalHop::Reason::kData, -1, firing});
    }
  }

  // Whether the actor's stream has the cores that the kernel holds. If not, the actor goes on once they are free.
  bool has_cores(int a, int kernel) {
    if (pools_.empty() || cores_of_kernels_[kernel] < 0) return true;
    StreamState& stream = streams_[plan_.actors[a].stream];
    const int need = cores_of_kernels_[kernel];
    if (stream.held == need) return true;
    give_cores(stream, a, actors_[a].firing);
    if (need > 0 && !pools_.at(rank_of(plan_, a)).take(a, need)) {
      actors_[a].waits_ns = now_;
      return false;
    }
    stream.held = need;
    return true;
  }

  // The stream of actor `a` gives back what it holds, in firing `from` or since. Who waited for that goes on.
  void give_cores(StreamState& stream, int a, int from) {
    const int held = std::exchange(stream.held, 0);
    if (held == 0) return;
    for (const auto& [actor, cores] : pools_.at(rank_of(plan_, a)).give(held)) {
      const int s = plan_.actors[actor].stream;
      streams_[s].held = cores;
      result_.stream_busy_ns[s] -= now_ - actors_[actor].waits_ns;
      late_[actors_[actor].firing].push_back({meetings_++, {CriticalHop::Reason::kCores, -1, from}});
      events_.push({now_, order_++, Event::Kind::kContinue, actor, 0, 0});
    }
  }

  // Streams with nothing to do, now that all messages of this moment have come, hold no cores. True if somebody goes
  // on.
  bool rest_streams() {
    const size_t before = events_.size();
    for (StreamState& stream : streams_) {
      if (stream.held > 0 && !stream.busy && stream.queue.empty())
        give_cores(stream, result_.firings[stream.last].actor, stream.last);
    }
    return events_.size() > before;
  }

  // `a` has come to a collective. When it is the last, all leave together, as late as the slowest of them needs.
  void meet(int a, int group) {
    actors_[a].call = static_cast<int>(result_.kernels.size()) - 1;
    std::map<int, std::deque<int>>& ranks = groups_.at(group);
    ranks.at(rank_of(plan_, a)).push_back(a);
    if (std::any_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.second.empty(); })) return;
    double cost = 0;
    for (const auto& [r, waiting] : ranks) {
      const SimKernel& call = result_.kernels[actors_[waiting.front()].call];
      cost = std::max(cost, plan_.kernels[call.kernel].cost_ns);
    }
    for (auto& [r, waiting] : ranks) {
      const int b = waiting.front();
      waiting.pop_front();
      SimKernel& call = result_.kernels[actors_[b].call];
      actors_[b].call = -1;
      call.met_ns = now_;
      result_.stream_busy_ns[plan_.actors[b].stream] -= now_ - call.begin_ns;
      call.end_ns = now_ + cost;
      if (b != a) late_[call.firing].push_back({meetings_, {CriticalHop::Reason::kRanks, group, actors_[a].firing}});
      events_.push({call.end_ns, order_++, Event::Kind::kContinue, b, 0, 0});
    }
    ++meetings_;
  }

  void find_blocked() {
    if (!starts_) return;
    // Whole periods only: a step may be part of one.
    const int64_t periods = options_.steps / steps_of_period_;
    std::vector<int> left(plan_.actors.size());
    for (size_t a = 0; a < left.size(); ++a) {
      left[a] = static_cast<int>(
          std::max<int64_t>(0, periods * repetitions_[a] - static_cast<int64_t>(network_.rules[a].firings())));
      result_.deadlocked |= left[a] > 0;
    }
    if (!result_.deadlocked) return;
    result_.blocked = blocking_cycle_str(plan_, shortest_blocking_cycle(network_, left));
    if (result_.blocked.empty()) result_.blocked = missing_str();
  }

  // Names the ranks that a collective waits for because they have not come to it.
  std::string missing_str() const {
    for (const auto& [group, ranks] : groups_) {
      int there = -1, missing = -1;
      for (const auto& [r, waiting] : ranks)
        (waiting.empty() ? missing : there) = waiting.empty() ? r : waiting.front();
      if (there < 0) continue;
      return fmt::format("'{}' is in collective '{}' of group {} and waits for rank {}", plan_.actors[there].name,
                         plan_.kernels[result_.kernels[actors_[there].call].kernel].name, group, missing);
    }
    return "";
  }

  void find_period() {
    // Completions of the sink; without one, of the actor that ends last.
    result_.steady_to_ns = result_.total_ns;
    int last = sinks_.empty() ? -1 : sinks_.back();
    if (last < 0 && !result_.firings.empty()) {
      last =
          std::max_element(result_.firings.begin(), result_.firings.end(), [](const SimFiring& x, const SimFiring& y) {
            return x.end_ns < y.end_ns;
          })->actor;
    }
    if (last < 0 || !starts_) return;
    std::vector<int> firings;
    for (int f = 0; f < static_cast<int>(result_.firings.size()); ++f) {
      if (result_.firings[f].actor == last) firings.push_back(f);
    }
    const size_t n = firings.size();
    if (n < 3) return;
    const size_t half = n / 2;
    result_.steady_from_ns = result_.firings[firings[half]].end_ns;
    result_.steady_to_ns =
        result_.firings[firings[n - 1 - n / 5]].end_ns;  // then those that are ahead have no more work
    const double span = result_.firings[firings[n - 1]].end_ns - result_.steady_from_ns;
    result_.period_ns = span / static_cast<double>(n - 1 - half) * per_step(last);
    trace_back(firings[n - 1 - n / 8]);
  }

  double per_step(int actor) const { return static_cast<double>(repetitions_[actor]) / steps_of_period_; }

  // Why a firing went on when it did: a rank that came late to its last meeting before `before`, which then becomes
  // that meeting, or what it began after.
  Cause cause_of(int firing, int64_t& before) const {
    const auto late = late_.find(firing);
    if (late == late_.end()) return causes_[firing];
    for (size_t i = late->second.size(); i-- > 0;) {
      const auto& [meeting, cause] = late->second[i];
      if (meeting >= before) continue;
      before = meeting;
      return cause;
    }
    return causes_[firing];
  }

  // From a late firing back along what each waited for, without gaps. The actor that comes most often in the steady
  // part sets the pace (of equals, the slowest); between two of its firings lies the critical cycle.
  void trace_back(int firing) {
    std::vector<int> chain;
    std::vector<Cause> causes;  // of the chain
    const double steady = result_.firings[firing].begin_ns / 4;
    int64_t before = meetings_;
    for (int f = firing; f >= 0 && result_.firings[f].begin_ns >= steady; f = causes.back().firing) {
      chain.push_back(f);
      causes.push_back(cause_of(f, before));
    }
    std::vector<std::vector<size_t>> at(plan_.actors.size());  // places in the chain, newest first
    for (size_t i = 0; i < chain.size(); ++i) at[result_.firings[chain[i]].actor].push_back(i);
    // Are two firings at the same place of the actor's period? Firings between others are a part of a period.
    const auto alike = [&](int a, size_t x, size_t y) {
      return (result_.firings[chain[at[a][x]]].firing - result_.firings[chain[at[a][y]]].firing) % repetitions_[a] == 0;
    };
    // The two that are furthest apart; the first and the last where no two are alike.
    const auto periods_of = [&](int a) {
      std::pair<size_t, size_t> most{0, 0};
      for (size_t first = 0; first < std::min<size_t>(at[a].size(), repetitions_[a]); ++first) {
        size_t last = at[a].size() - 1;
        while (last > first + most.second - most.first && !alike(a, first, last)) --last;
        if (last > first + most.second - most.first) most = {first, last};
      }
      return most.second > 0 ? most : std::pair{size_t{0}, at[a].size() - 1};
    };
    int pacer = -1;
    for (int a = 0; a < static_cast<int>(at.size()); ++a) {
      if (at[a].size() < 2) continue;
      const auto [first, last] = periods_of(a);
      const SimFiring &newest = result_.firings[chain[at[a][first]]], &oldest = result_.firings[chain[at[a][last]]];
      const double ns =
          (newest.begin_ns - oldest.begin_ns) / static_cast<double>(newest.firing - oldest.firing) * per_step(a);
      if (pacer >= 0 &&
          (at[a].size() < at[pacer].size() || (at[a].size() == at[pacer].size() && ns <= result_.period_ns))) {
        continue;
      }
      pacer = a;
      result_.period_ns = ns;
    }
    if (pacer < 0) return;
    const size_t middle = (at[pacer].size() - 1) / 2;
    size_t before_it = middle + 1;
    while (before_it + 1 < at[pacer].size() && !alike(pacer, middle, before_it)) ++before_it;
    // Who takes turns for cores may fire twice in a turn: then the cycle goes over as many firings as keep the pace.
    const auto paced = [&](size_t other) {
      const SimFiring &newer = result_.firings[chain[at[pacer][middle]]],
                      &older = result_.firings[chain[at[pacer][other]]];
      const double ns = (newer.begin_ns - older.begin_ns) / static_cast<double>(newer.firing - older.firing);
      return alike(pacer, middle, other) &&
             std::abs(ns * per_step(pacer) - result_.period_ns) <= result_.period_ns / 100;
    };
    // A firing that waits for cores within has begun before: its wait is a hop of the cycle all the same.
    const auto for_cores = [&](size_t from, size_t to) {
      return std::any_of(causes.begin() + static_cast<std::ptrdiff_t>(from),
                         causes.begin() + static_cast<std::ptrdiff_t>(to),
                         [](const Cause& cause) { return cause.reason == CriticalHop::Reason::kCores; });
    };
    const bool shared = for_cores(at[pacer].front(), at[pacer].back());
    for (size_t other = before_it; shared && other < at[pacer].size(); ++other) {
      if (!paced(other) || !for_cores(at[pacer][middle], at[pacer][other])) continue;
      before_it = other;
      break;
    }
    for (size_t i = at[pacer][before_it]; i-- > at[pacer][middle];) {
      const Cause& cause = causes[i];
      result_.critical.push_back({result_.firings[chain[i]].actor, cause.reason, cause.reg});
    }
  }

  const Plan& plan_;
  const SimulateOptions& options_;
  const std::vector<int> repetitions_;
  Network network_;
  std::vector<ActorState> actors_;
  std::vector<StreamState> streams_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Cause> causes_;                                   // per firing
  std::map<int, std::map<int, std::deque<int>>> groups_;        // by group and rank: actors in a call that wait
  std::map<int, std::vector<std::pair<int64_t, Cause>>> late_;  // by firing: what it waited for within
  int64_t meetings_ = 0;                                        // and gifts of cores, which others waited for
  std::vector<int> cores_of_kernels_;
  std::map<int, VirtualCores> pools_;  // by rank; none: no limit
  Simulation result_;
  double now_ = 0;
  int64_t order_ = 0;
  int last_firing_ = -1;
  bool starts_ = false;  // something does
  int steps_of_period_ = 1;
  std::vector<int> sinks_;
  int to_submit_ = 0;
};

}  // namespace

Simulation simulate(const Plan& plan, const SimulateOptions& options) {
  constexpr int kMost = 1 << 30;  // firings of a source
  int starts = 1;
  for (const Actor& actor : plan.actors) starts = std::max(starts, actor.starts);
  SLUICE_CHECK(options.steps >= 1 && options.steps <= kMost / starts, "simulate: steps is {}; must be in 1 to {}",
               options.steps, kMost / starts);
  return Simulator(plan, options).run();
}

}  // namespace sluice::plan
