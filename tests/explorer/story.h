#pragma once
// A plan and a way through it in words, for the developer who has to find out why.
#include <string>

#include "explorer/search.h"

namespace sluice::explorer {

inline std::string plan_str(const plan::Plan& plan) {
  std::string text;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    const plan::Actor& actor = plan.actors[a];
    constexpr const char* kRoles[] = {"", " (source)", " (feed)", " (sink)"};
    text += fmt::format("  actor '{}'{} on {}:", actor.name, kRoles[static_cast<int>(actor.role)],
                        plan.streams[actor.stream].name);
    for (const plan::Instr& i : actor.program) {
      if (i.kind == plan::InstrKind::kRun) {
        const plan::Kernel& k = plan.kernels[i.index];
        text += " run " + k.name.substr(k.name.find('/') + 1);
        if (k.collective >= 0) text += fmt::format(" (group {})", k.collective);
      }
      if (i.kind == plan::InstrKind::kEmit) text += " emit " + plan.registers[i.index].name;
      if (i.kind == plan::InstrKind::kRelease) text += " release " + plan.registers[plan.edges[i.index].reg].name;
    }
    text += "\n";
  }
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const plan::Register& reg = plan.registers[r];
    text += fmt::format("  register '{}': quota {}", reg.name, reg.quota);
    if (reg.bytes == 0) text += ", control";
    if (reg.emit_every != 1) text += fmt::format(", 1 per {} firings", reg.emit_every);
    if (reg.initial_tokens != 0) text += fmt::format(", {} at the start", reg.initial_tokens);
    if (reg.in_place_of >= 0)
      text += fmt::format(", in place of '{}'", plan.registers[plan.edges[reg.in_place_of].reg].name);
    text += fmt::format(", '{}' ->", plan.actors[reg.producer].name);
    for (const plan::Edge& e : plan.edges) {
      if (e.reg != static_cast<int>(r)) continue;
      text += fmt::format(" '{}'", plan.actors[e.consumer].name);
      if (e.take != 1 || e.hold != 1) text += fmt::format(" ({} per {})", e.take, e.hold);
    }
    text += "\n";
  }
  return text;
}

template <class Rule>
std::string event_str(const World<Rule>& world, const State<Rule>& s, const Event& event) {
  const plan::Plan& plan = world.plan();
  const auto actor = [&](int a) { return "'" + plan.actors[a].name + "'"; };
  switch (event.kind) {
    case EventKind::kControl: {
      const bool stop = world.options().stop && s.actors[event.index].controls + 1 == world.controls();
      const int n = (world.options().split_starts ? 1 : world.options().steps) * plan.actors[event.index].starts;
      return (stop ? std::string("stop") : fmt::format("start({})", n)) + " reaches " + actor(event.index);
    }
    case EventKind::kToken: {
      const EdgeBooks& edge = s.edges[event.index];
      const std::string what = edge.arrived < edge.sent ? fmt::format("token {}", edge.arrived) : "the end";
      return fmt::format("{} of '{}' reaches {}", what, plan.registers[plan.edges[event.index].reg].name,
                         actor(plan.edges[event.index].consumer));
    }
    case EventKind::kAck: {
      const plan::Register& reg = plan.registers[plan.edges[event.index].reg];
      return fmt::format("{}'s ack of token {} of '{}' reaches {}", actor(plan.edges[event.index].consumer),
                         s.edges[event.index].acks_arrived, reg.name, actor(reg.producer));
    }
    case EventKind::kMeet: return fmt::format("the ranks of group {} meet", event.index);
    case EventKind::kStep: break;
  }
  const int pc = s.actors[event.index].pc;
  const std::vector<plan::Instr>& program = plan.actors[event.index].program;
  if (s.actors[event.index].meeting == ActorBooks::Meeting::kMet)
    return fmt::format("{} leaves '{}'", actor(event.index), plan.kernels[program[pc].index].name);
  if (pc < 0) return fmt::format("{} begins firing {}", actor(event.index), s.actors[event.index].begun);
  if (pc == static_cast<int>(program.size()))
    return fmt::format("{} finishes firing {}", actor(event.index), s.actors[event.index].firings);
  const plan::Instr& i = program[pc];
  if (i.kind == plan::InstrKind::kEmit) return actor(event.index) + " emits '" + plan.registers[i.index].name + "'";
  if (i.kind == plan::InstrKind::kRelease)
    return actor(event.index) + " releases '" + plan.registers[plan.edges[i.index].reg].name + "'";
  return actor(event.index) + " goes on";
}

// The plan, the way, and what broke at its end.
template <class Rule>
std::string story(World<Rule>& world, const Outcome& outcome) {
  std::string text = plan_str(world.plan());
  world.forget();
  State<Rule> s = world.initial();
  for (size_t i = 0; i < outcome.trace.size(); ++i) {
    text += fmt::format("  {:2}. {}\n", i + 1, event_str(world, s, outcome.trace[i]));
    world.apply(s, outcome.trace[i]);
  }
  return text + "  => " + outcome.broken + "\n";
}

}  // namespace sluice::explorer
