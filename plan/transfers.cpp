#include "plan/transfers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "plan/classes.h"
#include "plan/ranks.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

// Steps that the sources of a rank may be ahead of what it receives.
constexpr int kAhead = 16;

class Transfers {
 public:
  explicit Transfers(const Plan& plan)
      : plan_(plan),
        repetitions_(repetition_vector(plan)),
        edges_(Adjacency(plan).register_edges),
        steps_(steps_of_period(plan, repetitions_)) {
    for (const Kernel& k : plan.kernels) {
      group_ = std::max(group_, k.collective + 1);
      for (const View& view : k.outputs)
        if (view.base == BaseKind::kRegister) writers_.emplace(view.index, k);
    }
  }

  Plan take() {
    const int registers = static_cast<int>(plan_.registers.size());
    for (int r = 0; r < registers; ++r) transfer(r);
    sinks();
    plan_.certificate = find_schedule(plan_);
    if (std::optional<Classes> classes = classes_of(plan_)) {
      for (const auto& [group, callers] : ranks_of_groups(plan_)) {
        if (classes->groups.contains(group)) continue;
        for (const int c : callers) classes->groups[group].push_back(classes->rank_at(c));
      }
      set_classes(plan_, *classes);
    }
    return std::move(plan_);
  }

 private:
  int stream(int rank, const std::string& name) {
    Stream s;
    s.name = name;
    s.device.rank = rank;
    s.kind = StreamKind::kCollective;
    s.index = kFirstLane + lanes_++;
    plan_.streams.push_back(s);
    return static_cast<int>(plan_.streams.size()) - 1;
  }
  int actor(const std::string& name, int stream, ActorRole role = ActorRole::kNormal) {
    plan_.actors.push_back({name, stream, role, {}});
    return static_cast<int>(plan_.actors.size()) - 1;
  }
  // A control register and its only edge.
  int control(const std::string& name, int from, int to, int quota, int emit_every = 1, int hold = 1) {
    Register r;
    r.name = name;
    r.producer = from;
    r.quota = quota;
    r.emit_every = emit_every;
    plan_.registers.push_back(r);
    const int index = static_cast<int>(plan_.registers.size()) - 1;
    plan_.edges.push_back({index, to, 1, hold});
    return index;
  }
  void run(int actor, const std::string& op, int reg, bool written) {
    Kernel k;
    static_cast<Provenance&>(k) = origin_;
    k.name = plan_.actors[actor].name;
    k.op = op;
    k.collective = group_;
    const auto bytes = static_cast<int64_t>(plan_.registers[reg].bytes);
    View view{BaseKind::kRegister, reg, 0, 0, TensorSpec::contiguous({DType::kUInt8, {bytes}})};
    if (bytes > 0) (written ? k.outputs : k.inputs).push_back(view);
    k.attrs = {{"from", int64_t{from_}}};
    plan_.kernels.push_back(k);
    plan_.actors[actor].program.push_back({InstrKind::kRun, static_cast<int>(plan_.kernels.size()) - 1});
  }
  void emit(int reg) { plan_.actors[plan_.registers[reg].producer].program.push_back({InstrKind::kEmit, reg}); }
  void release(int edge) { plan_.actors[plan_.edges[edge].consumer].program.push_back({InstrKind::kRelease, edge}); }
  int last_edge() const { return static_cast<int>(plan_.edges.size()) - 1; }

  // The register's way to every other rank that reads it.
  void transfer(int r) {
    const int home = rank_of(plan_, plan_.registers[r].producer);
    std::map<int, std::vector<int>> away;  // edges by rank
    bool stays = false;
    for (const int e : edges_[r]) {
      const int reader = rank_of(plan_, plan_.edges[e].consumer);
      stays |= reader == home;
      if (reader != home) away[reader].push_back(e);
    }
    if (away.empty()) return;
    check(r, away);
    const auto writer = writers_.find(r);
    origin_ = writer == writers_.end() ? Provenance() : writer->second;
    const Register reg = plan_.registers[r];
    for (const auto& [there, edges] : away) {
      const std::string name = fmt::format("{}@{}", reg.name, there);
      const int sender = actor("send " + name, stream(home, "send " + name));
      const int receiver = actor("receive " + name, stream(there, "receive " + name));
      // The copy of the register on the readers' rank. Its initial tokens are there from the start.
      Register copy = reg;
      copy.name = name;
      copy.producer = receiver;
      copy.emit_every = 1;
      copy.in_place_of = -1;
      for (int& slot : copy.slots) slot = buffer(slot, there);
      plan_.registers.push_back(copy);
      const int copied = static_cast<int>(plan_.registers.size()) - 1;
      for (const int e : edges) {
        move(e, copied);
        share(e);
      }
      plan_.edges.push_back({r, sender, 1, 1});
      const int sent = last_edge();
      from_ = home < there ? 0 : 1;
      run(sender, "send", r, false);
      // The receiver fires as often as a token is made: with the steps, as everything does.
      const int tokens = repetitions_[reg.producer] / reg.emit_every, common = std::gcd(tokens, steps_);
      const int source = actor("steps of " + name, stream_of_steps(edges, receiver), ActorRole::kSource);
      const int pace = control("pace of " + name, source, receiver, kAhead, steps_ / common, tokens / common);
      const int paced = last_edge();
      const int wire = control("wire of " + name, sender, receiver, 1);
      const int wired = last_edge();
      run(receiver, "receive", copied, true);
      emit(copied);
      emit(wire);
      release(sent);
      emit(pace);
      release(paced);
      release(wired);
      senders_[home].push_back({sender, tokens});
      sources_[there].push_back(source);
      ++group_;
    }
    // Initial tokens are where they are read. Kept here too, they would be sent.
    if (!stays) plan_.registers[r].initial_tokens = 0;
  }

  // The stream with which the receiver's steps begin: the readers', which a step wakes in any case, if they are on one
  // that waits for no other rank.
  int stream_of_steps(const std::vector<int>& edges, int receiver) const {
    const auto stream_of = [&](int e) { return plan_.actors[plan_.edges[e].consumer].stream; };
    const int first = stream_of(edges.front());
    const bool one = std::all_of(edges.begin(), edges.end(), [&](int e) { return stream_of(e) == first; });
    const Stream& s = plan_.streams[first];
    const bool waits = s.kind == StreamKind::kCollective || s.device.kind != DeviceKind::kCpu;
    return one && !waits ? first : plan_.actors[receiver].stream;
  }
  // One like it, for another rank.
  int buffer(int like, int rank) {
    Buffer b = plan_.buffers[like];
    b.name += fmt::format("@{}", rank);
    plan_.buffers.push_back(b);
    return static_cast<int>(plan_.buffers.size()) - 1;
  }
  // The edge that replaces another lies where its register now does.
  void share(int edge) {
    for (size_t r = 0; r < plan_.registers.size(); ++r) {
      Register& reg = plan_.registers[r];
      if (reg.in_place_of != edge) continue;
      reg.slots = plan_.registers[plan_.edges[edge].reg].slots;
      for (size_t e = 0; e < plan_.edges.size(); ++e) {
        if (plan_.edges[e].reg == static_cast<int>(r)) share(static_cast<int>(e));
      }
    }
  }

  void check(int r, const std::map<int, std::vector<int>>& away) const {
    const Register& reg = plan_.registers[r];
    const auto refuse = [&](const std::string& why) {
      fail(ErrorKind::kUnsupported, "plan '{}': register '{}' goes from rank {} to rank {}, but {}", plan_.name,
           reg.name, rank_of(plan_, reg.producer), away.begin()->first, why);
    };
    for (const int slot : reg.slots) {
      const Space& space = plan_.spaces[plan_.arenas[plan_.buffers[slot].arena].space];
      if (space.kind == SpaceKind::kDevice) refuse("lies in " + space.str() + "; only memory of the host can travel");
      if (plan_.arenas[plan_.buffers[slot].arena].stream >= 0)
        refuse("lies in the arena of a stream; it needs slots that nothing shares");
    }
    if (reg.initial_tokens == 0) return;
    for (const int e : edges_[r]) {
      if (rank_of(plan_, plan_.edges[e].consumer) == rank_of(plan_, reg.producer) || away.size() > 1)
        refuse("has initial tokens and readers on several ranks; give each rank a register of its own");
    }
  }

  // The edge reads `to` from now on.
  void move(int edge, int to) {
    const int from = plan_.edges[edge].reg;
    plan_.edges[edge].reg = to;
    const int reader = plan_.edges[edge].consumer;
    for (const Instr& i : plan_.actors[reader].program) {
      if (i.kind != InstrKind::kRun) continue;
      for (View& v : plan_.kernels[i.index].inputs) {
        if (v.base == BaseKind::kRegister && v.index == from) v.index = to;
      }
    }
    for (Output& o : plan_.outputs) {
      if (o.view.index == from && plan_.actors[reader].role == ActorRole::kSink) o.view.index = to;
    }
  }

  // A rank without a sink gets one: its steps end when all it sends has been sent.
  void sinks() {
    std::set<int> ranks, sunk;
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a) {
      ranks.insert(rank_of(plan_, a));
      if (plan_.actors[a].role == ActorRole::kSink) sunk.insert(rank_of(plan_, a));
    }
    for (const int r : ranks) {
      if (sunk.count(r) || (senders_[r].empty() && sources_[r].empty())) continue;
      const std::string name = fmt::format("end of steps@{}", r);
      // The sink goes to the stream on which the last of what it waits for may end: nobody has to be woken for it,
      // then.
      const int last = senders_[r].empty() ? sources_[r].back() : senders_[r].back().first;
      const int sink = actor(name, plan_.actors[last].stream, ActorRole::kSink);
      for (const auto& [sender, tokens] : senders_[r]) {
        const int common = std::gcd(tokens, steps_);
        emit(control("sent: " + plan_.actors[sender].name, sender, sink, kAhead, tokens / common, steps_ / common));
        release(last_edge());
      }
      for (size_t s = 0; senders_[r].empty() && s < sources_[r].size(); ++s) {
        emit(control("begun: " + plan_.actors[sources_[r][s]].name, sources_[r][s], sink, kAhead));
        release(last_edge());
      }
    }
  }

  Plan plan_;
  const std::vector<int> repetitions_;
  const std::vector<std::vector<int>> edges_;  // per register, as given
  const int steps_;                            // per period
  int group_ = 0, lanes_ = 0, from_ = 0;
  std::map<int, Provenance> writers_;                        // of the kernel that writes it, by register
  Provenance origin_;                                        // of the transfers that are made
  std::map<int, std::vector<std::pair<int, int>>> senders_;  // by rank: actor, tokens per period
  std::map<int, std::vector<int>> sources_;                  // by rank
};

}  // namespace

bool crosses_ranks(const Plan& plan) {
  return std::any_of(plan.edges.begin(), plan.edges.end(), [&](const Edge& e) {
    const int from = plan.registers[e.reg].producer;
    return plan.streams[plan.actors[from].stream].device.rank !=
           plan.streams[plan.actors[e.consumer].stream].device.rank;
  });
}

Plan with_transfers(const Plan& plan) { return crosses_ranks(plan) ? Transfers(plan).take() : plan; }

}  // namespace sluice::plan
