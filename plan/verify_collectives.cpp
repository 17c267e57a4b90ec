// Collectives: every rank of a group meets the same calls in the same order, and waiting for one another cannot block.
#include <algorithm>
#include <map>
#include <set>

#include "plan/network.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

// A call of a period: `firing` of `actor` runs `kernel`.
struct Call {
  int actor = 0;
  int64_t firing = 0;
  int kernel = 0;
};

class Collectives {
 public:
  Collectives(const Plan& plan, VerifyReport& report) : plan_(plan), report_(report) {}

  void run() {
    collect();
    if (calls_.empty()) return;
    same_calls();
    if (report_.ok()) fixed_order();
    if (report_.ok()) execute();
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back({"collectives", fmt::format(format, std::forward<Args>(args)...)});
  }
  int rank(int actor) const { return plan_.streams[plan_.actors[actor].stream].device.rank; }
  const std::string& name(int actor) const { return plan_.actors[actor].name; }

  void collect() {
    collective_.resize(plan_.actors.size());
    for (size_t a = 0; a < plan_.actors.size(); ++a) {
      for (const Instr& i : plan_.actors[a].program) {
        if (i.kind == InstrKind::kRun && plan_.kernels[i.index].collective >= 0) collective_[a] = true;
      }
    }
    std::vector<int64_t> count(plan_.actors.size());
    for (const int a : report_.certificate) {
      const int64_t firing = count[a]++;
      if (!collective_[a]) continue;
      per_stream_[plan_.actors[a].stream].push_back({a, firing, -1});
      for (const Instr& i : plan_.actors[a].program) {
        if (i.kind != InstrKind::kRun || plan_.kernels[i.index].collective < 0) continue;
        calls_[plan_.kernels[i.index].collective][rank(a)].push_back({a, firing, i.index});
      }
    }
    fires_ = count;
  }

  static std::string operands(const Kernel& k) {
    std::string s = k.op + "(";
    for (size_t i = 0; i < k.inputs.size(); ++i) {
      s += (i ? ", " : "") + std::string(dtype_name(k.inputs[i].spec.dtype)) + k.inputs[i].spec.shape.str();
    }
    return s + ")";
  }

  void same_calls() {
    for (const auto& [group, ranks] : calls_) {
      const auto& [first_rank, first] = *ranks.begin();
      for (const auto& [r, calls] : ranks) {
        const size_t n = std::min(first.size(), calls.size());
        for (size_t i = 0; i < n; ++i) {
          const Kernel& x = plan_.kernels[first[i].kernel];
          const Kernel& y = plan_.kernels[calls[i].kernel];
          if (operands(x) == operands(y)) continue;
          problem(
              "group {}: call {}: rank {} calls '{}', {}; rank {} calls '{}', {}; all ranks must meet the same call",
              group, i, first_rank, x.name, operands(x), r, y.name, operands(y));
          return;
        }
        if (first.size() != calls.size()) {
          problem("group {}: rank {} makes {} calls a period, rank {} makes {}; all ranks must make equally many",
                  group, first_rank, first.size(), r, calls.size());
          return;
        }
      }
    }
  }

  // Two calls of one group, or on one stream, must not be able to change places.
  void fixed_order() {
    FixedOrder fixed(plan_);
    const auto in_order = [&](std::vector<Call> sequence, const std::string& what) {
      const Call first = sequence.front();
      sequence.push_back({first.actor, first.firing + fires_[first.actor], first.kernel});
      for (size_t i = 0; i + 1 < sequence.size(); ++i) {
        const Call& a = sequence[i];
        const Call& b = sequence[i + 1];
        if (a.actor == b.actor || fixed.precedes(a.actor, a.firing, b.actor, b.firing)) continue;
        problem("{}: nothing makes '{}' come before '{}'; order them by a control register", what, name(a.actor),
                name(b.actor));
        return false;
      }
      return true;
    };
    for (const auto& [group, ranks] : calls_) {
      for (const auto& [r, calls] : ranks) {
        if (!in_order(calls, fmt::format("group {} on rank {}", group, r))) return;
      }
    }
    for (const auto& [stream, firings] : per_stream_) {
      if (!in_order(firings, fmt::format("collectives on stream '{}'", plan_.streams[stream].name))) return;
    }
  }

  // Runs one period instruction by instruction; a collective holds its stream until all ranks are there. Collectives
  // start as early as they can, which blocks streams for longest: what survives this survives every order.
  struct Running {
    int actor = -1;
    size_t pc = 0;
    bool at_collective = false;
  };
  struct Host {
    Network& network;
    void ready(int edge, int slot) {
      network.rules[network.ends(edge).consumer].on_ready(network.ends(edge).in_port, slot, *this);
    }
    void ack(int edge, int slot) {
      ++network.acks[edge];
      network.rules[network.ends(edge).producer].on_ack(network.ends(edge).out_port, slot, *this);
    }
    void end(int) {}
  };

  bool advance(Network& network, Running& run) {
    Host host{network};
    FiringRule& rule = network.rules[run.actor];
    const std::vector<Instr>& program = plan_.actors[run.actor].program;
    for (; run.pc < program.size(); ++run.pc) {
      const Instr& i = program[run.pc];
      if (i.kind == InstrKind::kEmit) rule.emit(network.out_port(i.index), host);
      if (i.kind == InstrKind::kRelease) rule.release(network.ends(i.index).in_port, host);
      if (i.kind == InstrKind::kRun && plan_.kernels[i.index].collective >= 0) {
        if (!run.at_collective) {
          run.at_collective = true;
          return false;
        }
        run.at_collective = false;
      }
    }
    rule.finish(host);
    run.actor = -1;
    return true;
  }

  int group_of(const Running& run) const {
    return plan_.kernels[plan_.actors[run.actor].program[run.pc].index].collective;
  }

  void execute() {
    Network network(plan_);
    std::vector<int> left = report_.repetitions;
    for (int a = 0; a < network.actors(); ++a) network.rules[a].on_start(left[a]);
    std::vector<Running> streams(plan_.streams.size());
    const auto start = [&](bool collective) {
      for (int a = 0; a < network.actors(); ++a) {
        Running& run = streams[plan_.actors[a].stream];
        if (run.actor >= 0 || left[a] == 0 || collective_[a] != collective || !network.rules[a].can_fire()) continue;
        network.rules[a].begin();
        --left[a];
        run = {a, 0, false};
        advance(network, run);
        return true;
      }
      return false;
    };
    const auto meet = [&] {
      std::map<int, std::vector<int>> there;  // by group: streams
      for (int s = 0; s < static_cast<int>(streams.size()); ++s) {
        if (streams[s].actor >= 0) there[group_of(streams[s])].push_back(s);
      }
      for (const auto& [group, waiting] : there) {
        std::set<int> ranks;
        for (const int s : waiting) ranks.insert(plan_.streams[s].device.rank);
        if (ranks.size() != calls_[group].size()) continue;
        for (const int s : waiting) advance(network, streams[s]);
        return true;
      }
      return false;
    };
    while (start(true) || meet() || start(false)) {
    }
    if (std::all_of(left.begin(), left.end(), [](int n) { return n == 0; }) &&
        std::all_of(streams.begin(), streams.end(), [](const Running& r) { return r.actor < 0; })) {
      return;
    }
    report_cycle(network, left, streams);
  }

  void report_cycle(const Network& network, const std::vector<int>& left, const std::vector<Running>& streams) {
    const int n = network.actors();
    std::vector<std::vector<int>> arcs(n);
    std::map<std::pair<int, int>, std::string> why;
    const auto wait = [&](int a, int b, std::string text) {
      arcs[a].push_back(b);
      why.emplace(std::pair(a, b), std::move(text));
    };
    for (int a = 0; a < n; ++a) {
      const Running& run = streams[plan_.actors[a].stream];
      if (run.actor == a) {
        const Kernel& k = plan_.kernels[plan_.actors[a].program[run.pc].index];
        for (const auto& [r, calls] : calls_[k.collective]) {
          if (r == rank(a)) continue;
          // The first call of that rank which has not been made yet.
          for (const Call& call : calls) {
            const int64_t fired = static_cast<int64_t>(network.rules[call.actor].firings());
            const Running& there = streams[plan_.actors[call.actor].stream];
            const bool done = call.firing < fired ||
                              (there.actor == call.actor && call.firing == fired && passed(there, call.kernel));
            if (done) continue;
            const bool here = there.actor == call.actor &&
                              plan_.actors[call.actor].program[there.pc].index == call.kernel && there.at_collective;
            if (!here) {
              wait(a, call.actor,
                   fmt::format("'{}' is in collective '{}' and waits for rank {}, where '{}' has yet to call '{}'",
                               name(a), k.name, r, name(call.actor), plan_.kernels[call.kernel].name));
            }
            break;
          }
        }
        continue;
      }
      if (left[a] == 0) continue;
      if (network.rules[a].can_fire()) {
        if (run.actor >= 0)
          wait(a, run.actor,
               fmt::format("'{}' waits for stream '{}', held by '{}'", name(a),
                           plan_.streams[plan_.actors[a].stream].name, name(run.actor)));
        continue;
      }
      for (const Network::Blame& blame : network.blames(a)) {
        wait(a, blame.actor,
             fmt::format("'{}' waits for {} {} '{}'", name(a), blame.wait.str(plan_),
                         blame.wait.credit ? "held by" : "from", name(blame.actor)));
      }
    }
    const std::vector<int> cycle = shortest_cycle(arcs);
    std::string text;
    for (size_t i = 0; i < cycle.size(); ++i) text += (i ? "; " : "") + why[{cycle[i], cycle[(i + 1) % cycle.size()]}];
    problem("deadlock: {}; the calls must come in one order on all ranks", text);
  }

  bool passed(const Running& run, int kernel) const {
    const std::vector<Instr>& program = plan_.actors[run.actor].program;
    for (size_t i = 0; i < run.pc; ++i) {
      if (program[i].kind == InstrKind::kRun && program[i].index == kernel) return true;
    }
    return false;
  }

  const Plan& plan_;
  VerifyReport& report_;
  std::vector<bool> collective_;                           // per actor: its program has a collective
  std::vector<int64_t> fires_;                             // per actor, in the certificate
  std::map<int, std::map<int, std::vector<Call>>> calls_;  // by group and rank, in certificate order
  std::map<int, std::vector<Call>> per_stream_;
};

}  // namespace

void verify_collectives(const Plan& plan, VerifyReport& report) { Collectives(plan, report).run(); }

}  // namespace sluice::plan
