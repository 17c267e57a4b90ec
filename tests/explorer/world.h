#pragma once
// One plan, hosted: which events are possible in a state, what each does to it, and whether an invariant broke.
//
// The books check the rule from outside, against the plan alone:
//  - conservation: a rule's free slots are the quota less what the books say is in use; no slot is used twice;
//  - order: tokens and acks of an edge leave in production order, none after the end, no ack before the release;
//  - counts: a rule can fire exactly when the books say so;
//  - determinacy: every read finds the value that Meaning says, however the messages came;
//  - release: an ack leaves only when nobody can read the slot, also through registers in its place;
//  - ending: in the end all have ended, fired as often as Meaning says, and got every slot back.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "explorer/state.h"

namespace sluice::explorer {

enum class Hosting {
  kFree,     // every message waits on its edge; actors take them at any time, also between two instructions
  kStreams,  // as stream executors do: one firing at a time per stream, tokens within a stream counted at once
};

struct WorldOptions {
  Hosting hosting = Hosting::kFree;
  int steps = 1;
  bool split_starts = false;  // a start message for each step, instead of one for all
  bool stop = true;           // the last control message of every source
  int ends = -1;              // a source that has data for `ends_after` firings, and abandons the next
  int ends_after = 0;
  // Firings per actor that `steps` make without any end; empty: not known (a part of a period).
  std::vector<int> owed = {};
};

template <class Rule>
class World {
 public:
  using State = explorer::State<Rule>;
  using Meeting = ActorBooks::Meeting;

  World(const plan::Plan& plan, WorldOptions options)
      : plan_(plan),
        options_(std::move(options)),
        wiring_(plan),
        meaning_(plan, wiring_.adjacency(), options_.steps, values_, options_.ends, options_.ends_after) {
    const int registers = static_cast<int>(plan.registers.size());
    first_cell_.resize(registers, -1);
    for (int r = 0; r < registers; ++r) place_cells(r);
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      for (const plan::Instr& i : plan.actors[a].program) {
        if (!is_meeting(i)) continue;
        const std::pair<int, int> member{plan.kernels[i.index].collective, rank(static_cast<int>(a))};
        if (!members_.count(member)) members_.emplace(member, static_cast<int>(members_.size()));
      }
    }
  }

  const plan::Plan& plan() const { return plan_; }
  const plan::Network& wiring() const { return wiring_; }
  const Meaning& meaning() const { return meaning_; }
  const WorldOptions& options() const { return options_; }
  // The first invariant that broke, in words; "" as long as none has.
  const std::string& broken() const { return broken_; }
  void forget() { broken_.clear(); }

  State initial() {
    State s;
    const int actors = static_cast<int>(plan_.actors.size());
    for (int a = 0; a < actors; ++a) s.rules.emplace_back(plan_, wiring_.adjacency(), a);
    s.actors.resize(actors);
    s.edges.resize(plan_.edges.size());
    s.registers.resize(plan_.registers.size());
    s.cells.resize(cells_);
    s.stream_holder.assign(plan_.streams.size(), -1);
    s.calls.resize(members_.size());
    for (size_t r = 0; r < plan_.registers.size(); ++r) {
      const std::vector<int>& edges = wiring_.adjacency().register_edges[r];
      if (edges.empty()) continue;  // an initial token nobody consumes is a free slot
      const int n = plan_.registers[r].initial_tokens;
      s.registers[r].acquired = s.registers[r].emitted = n;
      for (int k = 0; k < n; ++k) cell(s, static_cast<int>(r), k) = meaning_.tokens[r][k];
      for (const int e : edges) s.edges[e].sent = s.edges[e].arrived = n;
    }
    check(s);
    return s;
  }

  // Everything that may happen next; `stops`: also the control messages that end the run.
  void events(const State& s, std::vector<Event>& events) const {
    events.clear();
    for (int a = 0; a < static_cast<int>(s.actors.size()); ++a) {
      if (is_source(a) && s.actors[a].controls < controls() && !busy(s, a)) events.push_back({EventKind::kControl, a});
    }
    for (int e = 0; e < static_cast<int>(s.edges.size()); ++e) {
      const EdgeBooks& edge = s.edges[e];
      const bool token = edge.arrived < edge.sent || (edge.end_sent && !edge.end_arrived);
      if (token && !busy(s, wiring_.ends(e).consumer)) events.push_back({EventKind::kToken, e});
      if (edge.acks_arrived < edge.acks_sent && !busy(s, wiring_.ends(e).producer))
        events.push_back({EventKind::kAck, e});
    }
    for (int a = 0; a < static_cast<int>(s.actors.size()); ++a) {
      const bool inside = s.actors[a].pc >= 0;
      if (inside ? s.actors[a].meeting != Meeting::kWaits : s.rules[a].can_fire() && !busy(s, a))
        events.push_back({EventKind::kStep, a});
    }
    for (const auto& [member, index] : members_) {
      if (member.second == first_rank(member.first) && all_there(s, member.first))
        events.push_back({EventKind::kMeet, member.first});
    }
  }

  // True when nothing but the control messages that end the run is left.
  bool idle(const State& s, const std::vector<Event>& events) const {
    return std::all_of(events.begin(), events.end(), [&](const Event& e) {
      return e.kind == EventKind::kControl && s.actors[e.index].controls + 1 == controls() && options_.stop;
    });
  }

  void apply(State& s, const Event& event) {
    switch (event.kind) {
      case EventKind::kControl: control(s, event.index); break;
      case EventKind::kToken: deliver_token(s, event.index); break;
      case EventKind::kAck: deliver_ack(s, event.index); break;
      case EventKind::kStep: step(s, event.index); break;
      case EventKind::kMeet: meet(s, event.index); break;
    }
    if (broken_.empty()) check(s);
  }

  // Checks a state in which nothing can happen any more, or nothing but the end: all that is owed is done, and it is
  // the same in all orders.
  void check_idle(const State& s) {
    std::vector<int> firings;
    for (int a = 0; a < static_cast<int>(s.actors.size()); ++a) {
      if (is_source(a) && s.actors[a].controls + options_.stop != controls()) return;  // the end has begun
      firings.push_back(s.actors[a].firings);
    }
    if (!options_.owed.empty() && firings != options_.owed) return breaks("blocked: " + waits_str(s));
    if (idle_firings_.empty()) idle_firings_ = firings;
    if (idle_firings_ != firings) breaks("determinacy: another order of messages leaves other actors waiting");
  }
  void check_final(const State& s) {
    if (!options_.stop) return;
    for (size_t a = 0; a < s.actors.size(); ++a) {
      if (!s.actors[a].ended) return breaks("ending: " + name(a) + " never ends; " + waits_str(s));
    }
    for (size_t a = 0; a < s.actors.size(); ++a) {
      if (s.actors[a].firings != meaning_.firings[a]) {
        return breaks(fmt::format("ending: {} has ended after {} firings; its tokens are enough for {}", name(a),
                                  s.actors[a].firings, meaning_.firings[a]));
      }
      if (!s.rules[a].quiescent()) return breaks("ending: " + name(a) + " has not got back all its slots");
    }
    for (size_t r = 0; r < s.registers.size(); ++r) {
      if (free_slots(s, static_cast<int>(r)) != plan_.registers[r].quota)
        return breaks("ending: slots of '" + plan_.registers[r].name + "' were not returned");
    }
  }

  std::string waits_str(const State& s) const {
    std::string text;
    for (size_t a = 0; a < s.actors.size(); ++a) {
      if (s.actors[a].ended) continue;
      std::string what;
      if (s.actors[a].meeting == Meeting::kWaits) {
        what =
            fmt::format("the other ranks in '{}'", plan_.kernels[plan_.actors[a].program[s.actors[a].pc].index].name);
      } else if (s.rules[a].can_fire() && busy(s, static_cast<int>(a))) {
        what = fmt::format("its stream, held by '{}'", plan_.actors[s.stream_holder[plan_.actors[a].stream]].name);
      } else {
        for (const plan::FiringRule::Wait& w : s.rules[a].waits()) what += (what.empty() ? "" : " and ") + w.str(plan_);
      }
      text += fmt::format("{}'{}' ({} firings) waits for {}", text.empty() ? "" : "; ", plan_.actors[a].name,
                          s.actors[a].firings, what.empty() ? "nothing" : what);
    }
    return text;
  }

  int controls() const { return (options_.split_starts ? options_.steps : options_.steps > 0) + options_.stop; }
  bool is_source(int a) const {
    return plan_.actors[a].role == plan::ActorRole::kSource || plan_.actors[a].role == plan::ActorRole::kFeed;
  }
  int rank(int actor) const { return plan_.streams[plan_.actors[actor].stream].device.rank; }
  const Values& values() const { return values_; }

  // Keeps those events of one actor that no other actor can add to before it has moved: whatever the others do
  // meanwhile commutes with them, so it is enough to try these first. All events when there is no such actor.
  void reduce(const State& s, std::vector<Event>& events) const {
    std::vector<Event> best;
    for (int a = 0; a < static_cast<int>(s.actors.size()); ++a) {
      if (!undisturbed(s, a)) continue;
      std::vector<Event> own;
      for (const Event& event : events) {
        if (actor_of(event) == a) own.push_back(event);
      }
      if (!own.empty() && (best.empty() || own.size() < best.size())) best = own;
    }
    if (!best.empty()) events = best;
  }
  // The actor to which an event happens.
  int actor_of(const Event& event) const {
    if (event.kind == EventKind::kToken) return wiring_.ends(event.index).consumer;
    if (event.kind == EventKind::kAck) return wiring_.ends(event.index).producer;
    return event.index;
  }

 private:
  static constexpr Value kUnwritten = 1;  // being written, or never

  struct Host {
    World& world;
    State& s;
    int actor;
    void ready(int edge, int slot) { world.send_token(s, actor, edge, slot); }
    void ack(int edge, int slot) { world.send_ack(s, actor, edge, slot); }
    void end(int edge) { world.send_end(s, actor, edge); }
  };

  std::string name(size_t actor) const { return "'" + plan_.actors[actor].name + "'"; }
  const std::string& register_name(int edge) const { return plan_.registers[plan_.edges[edge].reg].name; }
  void breaks(std::string what) {
    if (broken_.empty()) broken_ = std::move(what);
  }

  bool is_meeting(const plan::Instr& i) const {
    return options_.hosting == Hosting::kStreams && i.kind == plan::InstrKind::kRun &&
           plan_.kernels[i.index].collective >= 0;
  }
  int first_rank(int group) const { return members_.lower_bound({group, -1})->first.second; }
  bool busy(const State& s, int actor) const {
    return options_.hosting == Hosting::kStreams && s.stream_holder[plan_.actors[actor].stream] >= 0;
  }

  void place_cells(int r) {
    if (first_cell_[r] >= 0) return;
    if (const int e = plan_.registers[r].in_place_of; e >= 0) {
      place_cells(plan_.edges[e].reg);
      first_cell_[r] = first_cell_[plan_.edges[e].reg];
    } else {
      first_cell_[r] = cells_;
      cells_ += plan_.registers[r].quota;
    }
  }
  Value& cell(State& s, int reg, int token) { return s.cells[first_cell_[reg] + token % plan_.registers[reg].quota]; }

  // Tokens of a register that nobody needs any more: acknowledged by all.
  int returned(const State& s, int reg) const {
    int least = s.registers[reg].emitted;
    for (const int e : wiring_.adjacency().register_edges[reg]) least = std::min(least, s.edges[e].acks_arrived);
    return least;
  }
  int free_slots(const State& s, int reg) const {
    return plan_.registers[reg].quota - (s.registers[reg].acquired - returned(s, reg));
  }
  bool should_fire(const State& s, int a) const {
    const ActorBooks& actor = s.actors[a];
    if (is_source(a) && actor.credits <= actor.begun) return false;
    for (const int e : wiring_.adjacency().in_edges[a]) {
      const plan::Edge& edge = plan_.edges[e];
      if (actor.begun % edge.hold == 0 && s.edges[e].arrived - s.edges[e].taken < edge.take) return false;
    }
    for (const int r : wiring_.adjacency().out_registers[a]) {
      if (actor.begun % plan_.registers[r].emit_every == 0 && free_slots(s, r) < 1) return false;
    }
    return true;
  }

  void check(State& s) {
    for (int a = 0; a < static_cast<int>(s.actors.size()); ++a) {
      ActorBooks& actor = s.actors[a];
      if (s.rules[a].ended() && !actor.ended) {
        actor.ended = true;
        for (const int r : wiring_.adjacency().out_registers[a]) s.registers[r].acquired = s.registers[r].emitted;
      }
      const std::vector<int>& outs = wiring_.adjacency().out_registers[a];
      for (size_t p = 0; p < outs.size(); ++p) {
        const int said = s.rules[a].free_slots(static_cast<int>(p)), free = free_slots(s, outs[p]);
        if (said != free) {
          breaks(fmt::format("conservation: {} counts {} free slots of '{}'; {} are in use of {}", name(a), said,
                             plan_.registers[outs[p]].name, plan_.registers[outs[p]].quota - free,
                             plan_.registers[outs[p]].quota));
        }
      }
      if (actor.pc >= 0) continue;
      const bool should = !actor.ended && should_fire(s, a);
      if (s.rules[a].can_fire() != should) {
        breaks(fmt::format("counts: {} {} fire with the tokens and slots it has", name(a),
                           should ? "cannot but must be able to" : "can but must not"));
      }
    }
  }

  // True when every queue to `a` that is empty stays so until `a` has done something.
  bool undisturbed(const State& s, int a) const {
    if (options_.hosting != Hosting::kFree) return false;
    for (const int e : wiring_.adjacency().in_edges[a]) {
      const EdgeBooks& edge = s.edges[e];
      if (edge.arrived < edge.sent || edge.end_sent) continue;
      // The producer neither sends nor ends: it is a source that has credits left and no slot but those `a` has.
      const int r = plan_.edges[e].reg, p = wiring_.ends(e).producer;
      const bool full =
          edge.sent - edge.acks_arrived == plan_.registers[r].quota && edge.acks_sent == edge.acks_arrived;
      const bool lasting = is_source(p) && wiring_.adjacency().in_edges[p].empty() && s.actors[p].pc < 0 &&
                           s.actors[p].begun < options_.steps * plan_.actors[p].starts &&
                           (p != options_.ends || s.actors[p].begun < options_.ends_after) &&
                           s.actors[p].begun % plan_.registers[r].emit_every == 0;
      if (!full || !lasting) return false;
    }
    for (const int r : wiring_.adjacency().out_registers[a]) {
      for (const int e : wiring_.adjacency().register_edges[r]) {
        const EdgeBooks& edge = s.edges[e];
        if (edge.acks_arrived == edge.acks_sent && edge.acks_sent != edge.sent) return false;
      }
    }
    return true;
  }

  // --- what actors send ---

  void send_token(State& s, int actor, int e, int slot) {
    EdgeBooks& edge = s.edges[e];
    const plan::Register& reg = plan_.registers[plan_.edges[e].reg];
    const auto what = [&] { return fmt::format("{} sends slot {} of '{}'", name(actor), slot, reg.name); };
    if (edge.end_sent) return breaks("ending: " + what() + " after the end");
    if (edge.sent >= s.registers[plan_.edges[e].reg].emitted)
      return breaks(fmt::format("order: {}, but token {} has not been emitted", what(), edge.sent));
    if (slot != edge.sent % reg.quota)
      return breaks(fmt::format("order: {}; next is token {} in slot {}", what(), edge.sent, edge.sent % reg.quota));
    ++edge.sent;
    if (at_once(actor, wiring_.ends(e).consumer)) deliver_token(s, e);
  }

  void send_ack(State& s, int actor, int e, int slot) {
    EdgeBooks& edge = s.edges[e];
    const plan::Register& reg = plan_.registers[plan_.edges[e].reg];
    const auto what = [&] { return fmt::format("{} acknowledges slot {} of '{}'", name(actor), slot, reg.name); };
    const int token = edge.acks_sent;
    if (slot != token % reg.quota)
      return breaks(fmt::format("order: {}; next is token {} in slot {}", what(), token, token % reg.quota));
    const bool ended = s.rules[actor].ended();
    if (token >= (ended ? edge.arrived : edge.released))
      return breaks(
          fmt::format("release: {}, whose token {} it has not {}", what(), token, ended ? "got" : "released"));
    for (const int r : wiring_.adjacency().out_registers[actor]) {
      if (plan_.registers[r].in_place_of != e) continue;
      if (token < s.registers[r].emitted && token >= returned(s, r)) {
        return breaks(
            fmt::format("release: {}, in which '{}' still lies for its readers", what(), plan_.registers[r].name));
      }
    }
    ++edge.acks_sent;
    const int producer = wiring_.ends(e).producer;
    const bool counts_only = plan_.actors[producer].role != plan::ActorRole::kFeed && reg.in_place_of < 0;
    if (at_once(actor, producer) && counts_only) deliver_ack(s, e);
  }

  void send_end(State& s, int actor, int e) {
    if (s.edges[e].end_sent) return breaks(fmt::format("ending: {} ends '{}' twice", name(actor), register_name(e)));
    s.edges[e].end_sent = true;
  }

  bool at_once(int from, int to) const {
    return options_.hosting == Hosting::kStreams && plan_.actors[from].stream == plan_.actors[to].stream;
  }

  // --- what happens to actors ---

  void control(State& s, int a) {
    ActorBooks& actor = s.actors[a];
    ++actor.controls;
    Host host{*this, s, a};
    if (options_.stop && actor.controls == controls()) {
      s.rules[a].on_stop(host);
      return;
    }
    const int n = (options_.split_starts ? 1 : options_.steps) * plan_.actors[a].starts;
    actor.credits += n;
    s.rules[a].on_start(static_cast<uint64_t>(n));
  }

  void deliver_token(State& s, int e) {
    EdgeBooks& edge = s.edges[e];
    const int a = wiring_.ends(e).consumer, port = wiring_.ends(e).in_port;
    Host host{*this, s, a};
    if (edge.arrived < edge.sent) {
      const int slot = edge.arrived++ % plan_.registers[plan_.edges[e].reg].quota;
      s.rules[a].on_ready(port, slot, host);
    } else {
      edge.end_arrived = true;
      s.rules[a].on_end(port, host);
    }
  }

  void deliver_ack(State& s, int e) {
    EdgeBooks& edge = s.edges[e];
    const int a = wiring_.ends(e).producer;
    const int slot = edge.acks_arrived++ % plan_.registers[plan_.edges[e].reg].quota;
    s.rules[a].on_ack(wiring_.ends(e).out_port, slot, Host{*this, s, a});
  }

  // One move of an actor: to the next message it sends, or the end of its firing; with streams, to the next meeting.
  void step(State& s, int a) {
    ActorBooks& actor = s.actors[a];
    const std::vector<plan::Instr>& program = plan_.actors[a].program;
    const bool whole = options_.hosting == Hosting::kStreams;
    if (actor.pc < 0 && a == options_.ends && actor.begun == options_.ends_after) {
      s.rules[a].begin();
      return s.rules[a].abandon(Host{*this, s, a});
    }
    if (actor.pc < 0) {
      begin(s, a);
    } else if (actor.pc == static_cast<int>(program.size())) {
      return finish(s, a);
    } else if (actor.meeting == Meeting::kMet) {
      actor.meeting = Meeting::kNone;
      run(s, a, program[actor.pc++].index);
    } else {
      message(s, a, program[actor.pc++]);
    }
    for (; broken_.empty() && actor.pc < static_cast<int>(program.size()); ++actor.pc) {
      const plan::Instr& i = program[actor.pc];
      if (is_meeting(i)) return enter(s, a, i.index);
      if (i.kind == plan::InstrKind::kRun) {
        run(s, a, i.index);
      } else if (whole) {
        message(s, a, i);
      } else {
        return;
      }
    }
    if (whole && broken_.empty()) finish(s, a);
  }

  void begin(State& s, int a) {
    ActorBooks& actor = s.actors[a];
    Rule& rule = s.rules[a];
    const int f = actor.begun++;
    s.stream_holder[plan_.actors[a].stream] = a;
    actor.pc = 0;
    actor.known = Values::firing(a, f);
    rule.begin();
    const std::vector<int>& ins = wiring_.adjacency().in_edges[a];
    for (size_t p = 0; p < ins.size(); ++p) {
      const plan::Edge& edge = plan_.edges[ins[p]];
      const plan::Register& reg = plan_.registers[edge.reg];
      if (f % edge.hold == 0) s.edges[ins[p]].taken += edge.take;
      for (int t = 0; t < edge.take; ++t) {
        const int token = f / edge.hold * edge.take + t;
        const int slot = rule.input_slot(static_cast<int>(p), t);
        if (slot != token % reg.quota)
          return breaks(fmt::format("order: {} takes slot {} of '{}'; token {} is in slot {}", name(a), slot, reg.name,
                                    token, token % reg.quota));
        read(s, a, ins[p], token);
        actor.known = values_.read(actor.known, cell(s, edge.reg, token), carries_failures(reg));
      }
    }
    if (plan_.actors[a].role == plan::ActorRole::kSink && f < static_cast<int>(meaning_.sink[a].size()) &&
        actor.known != meaning_.sink[a][f]) {
      breaks(fmt::format("determinacy: firing {} of the sink {} gets another value, or another failure", f, name(a)));
    }
    const std::vector<int>& outs = wiring_.adjacency().out_registers[a];
    for (size_t p = 0; p < outs.size(); ++p) {
      const plan::Register& reg = plan_.registers[outs[p]];
      RegisterBooks& books = s.registers[outs[p]];
      if (f % reg.emit_every == 0) {
        if (free_slots(s, outs[p]) < 1)
          return breaks("conservation: " + name(a) + " takes a slot of '" + reg.name + "' in use");
        ++books.acquired;
        if (reg.in_place_of < 0) cell(s, outs[p], books.acquired - 1) = kUnwritten;
      }
      const int slot = rule.output_slot(static_cast<int>(p)), token = books.acquired - 1;
      if (slot != token % reg.quota)
        return breaks(fmt::format("order: {} writes slot {} of '{}'; token {} goes to slot {}", name(a), slot, reg.name,
                                  token, token % reg.quota));
    }
  }

  void read(State& s, int a, int e, int token) {
    const int reg = plan_.edges[e].reg;
    if (token >= static_cast<int>(meaning_.tokens[reg].size()))
      return breaks(fmt::format("determinacy: {} reads token {} of '{}', of which {} exist", name(a), token,
                                plan_.registers[reg].name, meaning_.tokens[reg].size()));
    if (cell(s, reg, token) != meaning_.tokens[reg][token])
      breaks(fmt::format("determinacy: {} reads token {} of '{}' in slot {}, where there is something else", name(a),
                         token, plan_.registers[reg].name, token % plan_.registers[reg].quota));
  }

  void run(State& s, int a, int k) {
    ActorBooks& actor = s.actors[a];
    const int f = actor.begun - 1;
    for (const plan::View& v : plan_.kernels[k].inputs) {
      if (v.base != plan::BaseKind::kRegister) continue;
      for (const int e : wiring_.adjacency().in_edges[a]) {
        const plan::Edge& edge = plan_.edges[e];
        if (edge.reg == v.index) read(s, a, e, f / edge.hold * edge.take + v.token);
      }
    }
    for (const plan::View& v : plan_.kernels[k].outputs) {
      if (v.base == plan::BaseKind::kRegister && plan_.registers[v.index].emit_every == 1)
        cell(s, v.index, s.registers[v.index].acquired - 1) = kUnwritten;
    }
    actor.known = values_.run(actor.known, meaning_.failure(k, f));
  }

  void message(State& s, int a, const plan::Instr& i) {
    const int f = s.actors[a].begun - 1;
    Host host{*this, s, a};
    if (i.kind == plan::InstrKind::kRelease) {
      const plan::Edge& edge = plan_.edges[i.index];
      if ((f + 1) % edge.hold == 0) s.edges[i.index].released += edge.take;
      s.rules[a].release(wiring_.ends(i.index).in_port, host);
      return;
    }
    RegisterBooks& books = s.registers[i.index];
    books.draft = values_.read(books.draft, s.actors[a].known);
    if ((f + 1) % plan_.registers[i.index].emit_every == 0) {
      cell(s, i.index, books.emitted) = values_.read(books.draft, static_cast<Value>(i.index));
      books.draft = 0;
      ++books.emitted;
    }
    s.rules[a].emit(wiring_.out_port(i.index), host);
  }

  void finish(State& s, int a) {
    s.actors[a].pc = -1;
    ++s.actors[a].firings;
    s.actors[a].known = 0;
    s.stream_holder[plan_.actors[a].stream] = -1;
    s.rules[a].finish(Host{*this, s, a});
  }

  // --- collectives: all ranks of a group must be in the call before any of them goes on ---

  void enter(State& s, int a, int k) {
    const std::pair<int, int> member{plan_.kernels[k].collective, rank(a)};
    for (size_t b = 0; b < s.actors.size(); ++b) {
      if (s.actors[b].meeting == Meeting::kNone || rank(static_cast<int>(b)) != member.second) continue;
      const plan::Kernel& other = plan_.kernels[plan_.actors[b].program[s.actors[b].pc].index];
      if (other.collective == member.first)
        return breaks(fmt::format("collectives: rank {} is in '{}' and '{}' of group {} at once", member.second,
                                  other.name, plan_.kernels[k].name, member.first));
    }
    s.actors[a].meeting = Meeting::kWaits;
    const int n = s.calls[members_.at(member)]++;
    // The first order of messages that comes so far says which call this is; all others must agree.
    std::vector<int>& order = call_order_[member];
    if (n == static_cast<int>(order.size())) order.push_back(k);
    if (order[n] != k)
      breaks(fmt::format("collectives: call {} of rank {} in group {} is '{}'; in another order of messages '{}'", n,
                         member.second, member.first, plan_.kernels[k].name, plan_.kernels[order[n]].name));
  }

  bool all_there(const State& s, int group) const {
    for (auto it = members_.lower_bound({group, -1}); it != members_.end() && it->first.first == group; ++it) {
      bool there = false;
      for (size_t a = 0; a < s.actors.size() && !there; ++a) there = is_at(s, static_cast<int>(a), it->first);
      if (!there) return false;
    }
    return true;
  }
  bool is_at(const State& s, int a, const std::pair<int, int>& member) const {
    return s.actors[a].meeting == Meeting::kWaits && rank(a) == member.second &&
           plan_.kernels[plan_.actors[a].program[s.actors[a].pc].index].collective == member.first;
  }

  void meet(State& s, int group) {
    std::vector<int> there;
    for (int a = 0; a < static_cast<int>(s.actors.size()); ++a) {
      if (is_at(s, a, {group, rank(a)})) there.push_back(a);
    }
    // Each hears of it in its own time.
    for (const int a : there) s.actors[a].meeting = Meeting::kMet;
  }

  const plan::Plan& plan_;
  WorldOptions options_;
  plan::Network wiring_;
  Values values_;
  Meaning meaning_;
  std::vector<int> first_cell_;  // per register
  int cells_ = 0;
  std::map<std::pair<int, int>, int> members_;                  // (group, rank): index in State::calls
  std::map<std::pair<int, int>, std::vector<int>> call_order_;  // kernels, as far as seen
  std::vector<int> idle_firings_;
  std::string broken_;
};

}  // namespace sluice::explorer
