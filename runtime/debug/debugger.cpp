#include "runtime/debug/debugger.h"

#include <algorithm>
#include <utility>

#include "actors/node.h"
#include "runtime/session/engine.h"
#include "runtime/session/session_core.h"
#include "streams/stream.h"

namespace sluice {
namespace {

// "the actors are a, b, c and 4 more"
template <class Named>
std::string names_of(const char* what, const std::vector<Named>& list) {
  constexpr size_t kMost = 12;
  std::string names = fmt::format("the {} are ", what);
  for (size_t i = 0; i < std::min(list.size(), kMost); ++i) names += (i > 0 ? ", " : "") + list[i].name;
  return list.size() > kMost ? fmt::format("{} and {} more", names, list.size() - kMost) : names;
}

template <class Named>
int index_of(const char* one, const char* many, const std::vector<Named>& list, const std::string& name) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Named& n) { return n.name == name; });
  SLUICE_CHECK(at != list.end(), "debug: there is no {} '{}'; {}", one, name, names_of(many, list));
  return static_cast<int>(at - list.begin());
}

}  // namespace

Debugger::Debugger(Engine& engine, Session& session, std::optional<uint64_t> seed)
    : engine_(engine), session_(session) {
  SLUICE_CHECK(engine.options().manual_stepping, "debug: the engine has threads; it must be made with manual_stepping");
  for (const plan::Kernel& kernel : plan().kernels)
    SLUICE_CHECK_KIND(kUnsupported, kernel.collective < 0,
                      "debug: plan '{}': kernel '{}' meets other ranks, which do not move while one actor fires; debug "
                      "the plan of one rank",
                      plan().name, kernel.name);
  for (size_t r = 0; r < plan().registers.size(); ++r) parts_.push_back(parts_of(plan(), static_cast<int>(r)));
  const std::vector<int>& order = plan().certificate;
  for (size_t a = 0; a < plan().actors.size(); ++a)
    place_.push_back(std::find(order.begin(), order.end(), static_cast<int>(a)) - order.begin());
  if (seed) random_.emplace(*seed);
}

void Debugger::submit(std::vector<InputTensor> inputs, uint64_t steps) {
  const size_t takes = session_.inputs().size();
  SLUICE_CHECK(inputs.size() == takes, "debug: got {} inputs; plan '{}' takes {}", inputs.size(), plan().name, takes);
  if (steps > 0) pending_.push_back({std::move(inputs), steps});
}

uint64_t Debugger::steps_left() const {
  uint64_t steps = in_flight_.size();
  for (const Pending& pending : pending_) steps += pending.steps;
  return steps;
}

int Debugger::actor_named(const std::string& name) const { return index_of("actor", "actors", plan().actors, name); }
int Debugger::register_named(const std::string& name) const {
  return index_of("register", "registers", plan().registers, name);
}

Breakpoint Debugger::add(Breakpoint breakpoint) {
  const auto has = [](int index, size_t n) { return index >= -1 && index < static_cast<int>(n); };
  SLUICE_CHECK(has(breakpoint.actor, plan().actors.size()) && has(breakpoint.reg, plan().registers.size()),
               "debug: breakpoint: actor {}, register {}; they must be the plan's", breakpoint.actor, breakpoint.reg);
  if (breakpoint.not_finite && breakpoint.reg >= 0)
    SLUICE_CHECK(!parts_[breakpoint.reg].empty(), "debug: register '{}' has no values: it only orders firings",
                 plan().registers[breakpoint.reg].name);
  if (breakpoint.nth >= 0 && breakpoint.actor >= 0) {
    const RunnerUse runner = session_.core_->use_runner();
    const uint64_t of = next_of(*runner, breakpoint.actor).of;
    SLUICE_CHECK(static_cast<uint64_t>(breakpoint.nth) < of,
                 "debug: micro-batch {}: actor '{}' fires {} in a step; they count from 0", breakpoint.nth,
                 plan().actors[breakpoint.actor].name, of == 1 ? "once" : fmt::format("{} times", of));
  }
  breakpoint.number = ++last_number_;
  breakpoints_.push_back(breakpoint);
  return breakpoint;
}

void Debugger::remove(int number) {
  const size_t removed = std::erase_if(breakpoints_, [&](const Breakpoint& b) { return b.number == number; });
  SLUICE_CHECK(removed > 0, "debug: there is no breakpoint {}; `breaks` lists them", number);
}

// Steps enter while there is room, so that as many are in flight as in a run with threads. Nothing may fire meanwhile,
// so this does not wait for room.
void Debugger::feed() {
  SessionCore& core = *session_.core_;
  while (!pending_.empty() && core.has_room()) {
    std::optional<StepHandle> handle = session_.try_submit(pending_.front().inputs);
    if (!handle) return;
    in_flight_.push_back(std::move(*handle));
    if (--pending_.front().steps == 0) pending_.pop_front();
  }
}

Firing Debugger::next_of(actors::Runner& runner, int actor) const {
  const plan::FiringCounts& counts = runner.counts();
  const uint64_t firing = runner.nodes()[actor]->rule().firings();
  Firing next{.actor = actor, .step = counts.step_of(actor, firing), .wrote = {}};
  const uint64_t before = counts.after(actor, next.step);
  next.of = std::max<uint64_t>(counts.after(actor, next.step + 1) - before, 1);
  next.nth = firing >= before ? firing - before : 0;
  return next;
}

// The actor that fires next; none when nothing is left to do.
std::optional<int> Debugger::choose() {
  const RunnerUse runner = session_.core_->use_runner();
  if (!runner) return std::nullopt;
  runner->ready_actors();  // slots that have come back let steps enter
  feed();
  const std::vector<int> ready = runner->ready_actors();
  if (chosen_ && std::find(ready.begin(), ready.end(), *chosen_) != ready.end()) return chosen_;
  if (ready.empty()) return chosen_ = std::nullopt;
  if (random_) return chosen_ = ready[(*random_)() % ready.size()];
  const auto before = [&](int a, int b) {
    return std::pair(next_of(*runner, a).step, place_[a]) < std::pair(next_of(*runner, b).step, place_[b]);
  };
  return chosen_ = *std::min_element(ready.begin(), ready.end(), before);
}

std::vector<uint64_t> Debugger::fired(actors::Runner& runner) const {
  std::vector<uint64_t> fired;
  for (const actors::Node* node : runner.nodes()) fired.push_back(node->rule().firings());
  return fired;
}

// Waits until devices have done what was launched.
void Debugger::settle(actors::Runner& runner) {
  for (const actors::Node* node : runner.nodes()) {
    Stream& stream = node->home().stream();
    if (stream.asynchronous()) static_cast<void>(stream.synchronize());  // a failure reaches the step by its tokens
  }
}

void Debugger::fire(Stop& stop, int actor) {
  const RunnerUse runner = session_.core_->use_runner();
  Firing firing = next_of(*runner, actor);
  const uint64_t before = runner->nodes()[actor]->rule().firings();
  runner->fire_once(actor);
  chosen_.reset();
  ++stop.firings;
  for (const int reg : runner->adjacency().out_registers[actor]) {
    const plan::Register& r = plan().registers[reg];
    const auto every = static_cast<uint64_t>(r.emit_every);
    if (parts_[reg].empty() || (before + 1) % every != 0 || runner->nodes()[actor]->rule().firings() == before)
      continue;
    const bool read = !runner->adjacency().register_edges[reg].empty();
    const uint64_t token = (read ? static_cast<uint64_t>(r.initial_tokens) : 0) + before / every;
    firing.wrote.push_back({reg, static_cast<int>(token % static_cast<uint64_t>(r.quota))});
  }
  runner->ready_actors();  // what it has sent is counted, so that slots show where their values are
  stop.firing = std::move(firing);
  finish(stop);
}

void Debugger::finish(Stop& stop) {
  while (!in_flight_.empty() && in_flight_.front().done()) {
    StepHandle handle = std::move(in_flight_.front());
    in_flight_.pop_front();
    stop.finished.push_back({handle.step(), handle.wait()});
    if (stop.finished.back().status.ok()) results_ = handle.outputs();
  }
}

const Breakpoint* Debugger::stops_before(const Firing& next) const {
  for (const Breakpoint& b : breakpoints_) {
    const bool here = (b.actor < 0 || b.actor == next.actor) &&
                      (b.step < 0 || static_cast<uint64_t>(b.step) == next.step) &&
                      (b.nth < 0 || static_cast<uint64_t>(b.nth) == next.nth);
    const auto told = told_.find(b.number);
    const bool again = b.actor < 0 && told != told_.end() && told->second == next.step;
    if (!b.not_finite && here && !again) return &b;
  }
  return nullptr;
}

bool Debugger::stops_behind(Stop& stop, const Firing& last) {
  const auto watches = [](const Breakpoint& b) { return b.not_finite; };
  if (std::none_of(breakpoints_.begin(), breakpoints_.end(), watches)) return false;
  const RunnerUse runner = session_.core_->use_runner();
  settle(*runner);
  for (const Firing::Token& token : last.wrote) {
    const auto at = std::find_if(breakpoints_.begin(), breakpoints_.end(), [&](const Breakpoint& b) {
      return b.not_finite && (b.reg < 0 || b.reg == token.reg) && (b.actor < 0 || b.actor == last.actor) &&
             (b.step < 0 || static_cast<uint64_t>(b.step) == last.step);
    });
    if (at == breakpoints_.end()) continue;
    for (size_t p = 0; p < parts_[token.reg].size(); ++p) {
      const SlotPart& part = parts_[token.reg][p];
      const std::byte* const from = runner->slots(token.reg)[token.slot];
      const std::vector<std::byte> data = read_part(engine_, space_of(token.reg), part, from);
      const auto found = first_not_finite({part.spec.dtype, part.spec.shape}, data.data());
      if (!found) continue;
      stop.reason = Stop::Reason::kNotFinite;
      stop.at = *at;
      stop.where = Stop::Where{token.reg, token.slot, static_cast<int>(p), *found};
      return true;
    }
  }
  return false;
}

std::optional<Firing> Debugger::next() {
  const std::optional<int> actor = choose();
  if (!actor) return std::nullopt;
  return next_of(*session_.core_->use_runner(), *actor);
}

Stop Debugger::step() {
  Stop stop;
  const std::optional<int> actor = choose();
  if (!actor) return stop;
  stop.reason = Stop::Reason::kStepped;
  fire(stop, *actor);
  stops_behind(stop, *stop.firing);
  return stop;
}

// A firing of which it has told once is let through.
Stop Debugger::run() {
  Stop stop;
  for (std::optional<int> actor = choose(); actor; actor = choose()) {
    const RunnerUse runner = session_.core_->use_runner();
    const std::pair<int, uint64_t> turn(*actor, runner->nodes()[*actor]->rule().firings());
    const Firing next = next_of(*runner, *actor);
    const Breakpoint* const at = stops_before(next);
    if (at != nullptr && std::exchange(stopped_at_, turn) != turn) {
      stop.reason = Stop::Reason::kBreakpoint;
      if (at->actor < 0) told_[at->number] = next.step;
      stop.at = *at;
      stop.firing = next;
      return stop;
    }
    fire(stop, *actor);
    if (stops_behind(stop, *stop.firing)) return stop;
  }
  stop.firing.reset();
  return stop;
}

std::vector<ActorState> Debugger::actors() {
  choose();
  const RunnerUse runner = session_.core_->use_runner();
  std::vector<ActorState> states;
  for (const actors::Node* node : runner->nodes()) {
    const plan::FiringRule& rule = node->rule();
    ActorState& state = states.emplace_back();
    state.next = next_of(*runner, node->actor());
    state.firings = rule.firings();
    state.ready = rule.can_fire();
    state.waits = rule.waits();
    state.starts = rule.start_credits();
  }
  return states;
}

std::vector<plan::SlotState> Debugger::slots(int reg) {
  choose();
  const RunnerUse runner = session_.core_->use_runner();
  return plan::slot_states(plan(), runner->adjacency(), fired(*runner), reg);
}

const plan::Space& Debugger::space_of(int reg) const {
  const plan::Buffer& buffer = plan().buffers[plan().registers[reg].slots[0]];
  return plan().spaces[plan().arenas[buffer.arena].space];
}

const SlotPart& Debugger::part_of(int reg, int part) const {
  SLUICE_CHECK(!parts_[reg].empty(), "debug: register '{}' has no values: it only orders firings",
               plan().registers[reg].name);
  SLUICE_CHECK(part >= 0 && part < static_cast<int>(parts_[reg].size()), "debug: part {} of register '{}'; it has {}",
               part, plan().registers[reg].name, parts_[reg].size());
  return parts_[reg][part];
}

int Debugger::newest_slot(int reg) {
  const std::vector<plan::SlotState> all = slots(reg);
  const plan::SlotState* newest = nullptr;
  for (const plan::SlotState& slot : all)
    if (slot.written && (newest == nullptr || slot.token > newest->token)) newest = &slot;
  SLUICE_CHECK(newest != nullptr, "debug: register '{}' has no value now; none of its {} slots is written and held",
               plan().registers[reg].name, all.size());
  return newest->slot;
}

std::byte* Debugger::address(int reg, int slot) {
  const std::vector<plan::SlotState> all = slots(reg);
  SLUICE_CHECK(slot >= 0 && slot < static_cast<int>(all.size()),
               "debug: slot {} of register '{}'; it has {}, from 0 on", slot, plan().registers[reg].name, all.size());
  SLUICE_CHECK(all[slot].written,
               "debug: slot {} of register '{}' is {}; only one that is written and held has a value", slot,
               plan().registers[reg].name, all[slot].used ? "being written" : "free");
  const RunnerUse runner = session_.core_->use_runner();
  settle(*runner);
  return runner->slots(reg)[slot];
}

std::vector<std::byte> Debugger::look(int reg, int slot, int part) {
  const SlotPart& p = part_of(reg, part);
  return read_part(engine_, space_of(reg), p, address(reg, slot));
}

void Debugger::change(int reg, int slot, int part, const TensorType& type, const std::byte* data) {
  const SlotPart& p = part_of(reg, part);
  const TensorType its{p.spec.dtype, p.spec.shape};
  SLUICE_CHECK_KIND(kType, type == its, "debug: register '{}': got {}; its value is {}", plan().registers[reg].name,
                    type.str(), its.str());
  write_part(engine_, space_of(reg), p, address(reg, slot), data);
}

}  // namespace sluice
