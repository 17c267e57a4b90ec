// why: where an actor, a kernel or a register comes from, and what it depends on.
#include <algorithm>

#include "plan/json/json.h"
#include "plan/placed.h"
#include "plan/query.h"
#include "plan/ranks.h"
#include "plan/time/cores.h"
#include "plan/time/simulator.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

struct Answer {
  std::string what;  // "kernel"
  std::string name;
  std::vector<std::pair<std::string, std::string>> facts;
};

int actor_of(const Plan& plan, int kernel) {
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    for (const Instr& i : plan.actors[a].program)
      if (i.kind == InstrKind::kRun && i.index == kernel) return static_cast<int>(a);
  }
  return -1;
}

Answer why_kernel(const Plan& plan, int index, const KernelFacts& here) {
  const Kernel& k = plan.kernels[index];
  Answer answer{"kernel", k.name, {}};
  auto& facts = answer.facts;
  facts.emplace_back("line", k.source.known() ? k.source.str() : "the program does not say");
  if (!k.module.empty()) facts.emplace_back("module", k.module);
  facts.emplace_back("role", role_name(k.role));
  facts.emplace_back("op", k.op);
  for (const auto& [name, value] : k.attrs) facts.emplace_back("attribute " + name, attr_str(value));
  const int actor = actor_of(plan, index);
  if (actor >= 0) {
    facts.emplace_back("actor", plan.actors[actor].name);
    facts.emplace_back("stream", stream_label(plan, plan.actors[actor].stream));
  }
  for (const PlacedKernel& p : placed_kernels(plan))
    if (p.kernel == index) facts.emplace_back("device", fmt::format("{}: {}", p.device.str(), p.why));
  if (k.region > 0)
    facts.emplace_back("checkpoint", fmt::format("region {}{}", k.region,
                                                 k.kept ? ", and kept all the same, since it takes long" : ""));
  if (k.collective >= 0) facts.emplace_back("collective", fmt::format("of group {}", k.collective));
  facts.emplace_back("takes", k.cost_ns > 0 ? time_str(k.cost_ns) + ", predicted" : "nothing says how long");
  if (const std::string way = beside<std::string>(k.attrs, kImplementation, ""); !way.empty())
    facts.emplace_back("implementation", way + ": the fastest of those that were tried");
  if (here)
    for (auto& fact : here(plan, index)) facts.push_back(std::move(fact));
  return answer;
}

// Who is in the critical cycle, and by which hop.
std::string cycle_str(const Plan& plan, const Simulation& sim, int actor) {
  const bool in = std::ranges::any_of(sim.critical, [&](const CriticalHop& hop) { return hop.actor == actor; });
  if (sim.critical.empty()) return "";
  return in ? "it is in the cycle that limits the plan: " + critical_str(plan, sim.critical)
            : "it is not in the cycle that limits the plan";
}

Simulation steady(const Plan& plan) { return simulate(plan, {.steps = 16, .cores = cores_of_target(plan.target)}); }

Answer why_actor(const Plan& plan, int index) {
  const Actor& a = plan.actors[index];
  const Adjacency adjacency(plan);
  Answer answer{"actor", a.name, {}};
  auto& facts = answer.facts;
  facts.emplace_back("role", actor_role_name(a.role));
  facts.emplace_back("stream", stream_label(plan, a.stream));
  double cost = 0;
  for (const Instr& i : a.program) {
    if (i.kind != InstrKind::kRun) continue;
    const Kernel& k = plan.kernels[i.index];
    cost += k.cost_ns;
    facts.emplace_back("runs", fmt::format("{} ({}){}", k.name, k.op, k.source.known() ? "  " + k.source.str() : ""));
  }
  if (cost > 0) facts.emplace_back("takes", time_str(cost) + ", predicted");
  for (const int e : adjacency.in_edges[index]) {
    const Register& r = plan.registers[plan.edges[e].reg];
    facts.emplace_back("waits for", fmt::format("data '{}' of '{}'", r.name, plan.actors[r.producer].name));
  }
  for (const int r : adjacency.out_registers[index]) {
    std::string consumers;
    for (const int e : adjacency.register_edges[r])
      consumers += fmt::format("{}'{}'", consumers.empty() ? "" : ", ", plan.actors[plan.edges[e].consumer].name);
    facts.emplace_back("waits for", fmt::format("one of {} of '{}', which {} gives back",
                                                count_str(static_cast<size_t>(plan.registers[r].quota), "slot"),
                                                plan.registers[r].name, consumers.empty() ? "nobody" : consumers));
  }
  if (is_started(a))
    facts.emplace_back("waits for", fmt::format("steps of the program, {} a step",
                                                count_str(static_cast<size_t>(a.starts), "firing")));
  if (rank_count(plan) == 1) {
    if (const std::string cycle = cycle_str(plan, steady(plan), index); !cycle.empty())
      facts.emplace_back("pace", cycle);
  }
  return answer;
}

Answer why_register(const Plan& plan, int index) {
  const Register& r = plan.registers[index];
  const Adjacency adjacency(plan);
  Answer answer{"register", r.name, {}};
  auto& facts = answer.facts;
  facts.emplace_back("of", plan.actors[r.producer].name);
  for (const int e : adjacency.register_edges[index])
    facts.emplace_back("for", plan.actors[plan.edges[e].consumer].name);
  facts.emplace_back("slots", fmt::format("{} of {}", r.quota, short_bytes(r.bytes)));
  if (r.in_place_of >= 0) facts.emplace_back("in place of", plan.registers[plan.edges[r.in_place_of].reg].name);
  if (rank_count(plan) == 1) {
    const Simulation sim = steady(plan);
    facts.emplace_back("in use at once", std::to_string(sim.peak_slots[index]));
    Plan fewer = plan;
    --fewer.registers[index].quota;
    if (r.quota > std::max(1, r.initial_tokens) && r.in_place_of < 0) {
      const Simulation less = steady(fewer);
      facts.emplace_back(
          "with one slot less",
          less.deadlocked ? "the plan would block"
                          : fmt::format("{} a step instead of {}", time_str(less.period_ns), time_str(sim.period_ns)));
    }
    Plan more = plan;
    ++more.registers[index].quota;
    if (!sim.deadlocked)
      facts.emplace_back("with one slot more", fmt::format("{} a step instead of {}", time_str(steady(more).period_ns),
                                                           time_str(sim.period_ns)));
  }
  return answer;
}

// Every answer to the name, which an actor and a kernel may share.
std::vector<Answer> answers(const Plan& plan, const std::string& name, const KernelFacts& here) {
  std::vector<Answer> found;
  for (size_t a = 0; a < plan.actors.size(); ++a)
    if (plan.actors[a].name == name) found.push_back(why_actor(plan, static_cast<int>(a)));
  for (size_t k = 0; k < plan.kernels.size(); ++k)
    if (plan.kernels[k].name == name) found.push_back(why_kernel(plan, static_cast<int>(k), here));
  for (size_t r = 0; r < plan.registers.size(); ++r)
    if (plan.registers[r].name == name) found.push_back(why_register(plan, static_cast<int>(r)));
  if (!found.empty()) return found;
  std::string alike;
  const auto look = [&](const auto& all) {
    for (const auto& entity : all)
      if (entity.name.find(name) != std::string::npos && alike.size() < 300)
        alike += (alike.empty() ? "" : ", ") + entity.name;
  };
  look(plan.actors), look(plan.kernels), look(plan.registers);
  fail(ErrorKind::kValue, "why: '{}': no actor, kernel or register of plan '{}' is called so; {}", name, plan.name,
       alike.empty() ? "`plan-viz show` lists their names" : "alike are " + alike);
}

}  // namespace

std::string why_text(const Plan& plan, const std::string& name, const TextOptions& options, const KernelFacts& here) {
  std::string s;
  for (const Answer& answer : answers(plan, name, here)) {
    s +=
        (s.empty() ? "" : "\n") + paint(fmt::format("{} '{}'", answer.what, answer.name), Color::kBold, options) + "\n";
    size_t width = 0;
    for (const auto& [label, text] : answer.facts) width = std::max(width, columns(label));
    for (const auto& [label, text] : answer.facts) s += "  " + padded(label, width) + "  " + text + "\n";
  }
  return s;
}

std::string why_json(const Plan& plan, const std::string& name, const KernelFacts& here) {
  std::string s = "[";
  const char* comma = "";
  for (const Answer& answer : answers(plan, name, here)) {
    s += fmt::format("{}\n  {{\"what\": \"{}\", \"name\": {}, \"facts\": [", std::exchange(comma, ","), answer.what,
                     quoted_json(answer.name));
    const char* inner = "";
    for (const auto& [label, text] : answer.facts)
      s += fmt::format("{}[{}, {}]", std::exchange(inner, ", "), quoted_json(label), quoted_json(text));
    s += "]}";
  }
  return s + "]\n";
}

std::string lanes_svg(const Plan& plan, const SimulateOptions& options) {
  const Simulation sim = simulate(plan, options);
  SLUICE_CHECK(sim.total_ns > 0,
               "svg: plan '{}': its kernels have no predicted costs, so that nothing takes time; give "
               "--links a file of costs",
               plan.name);
  constexpr double kLeft = 180, kRight = 20, kTop = 46, kLane = 34, kWidth = 1100;
  const std::vector<int> order = streams_by_device(plan);
  const double height = kTop + kLane * static_cast<double>(order.size()) + 40;
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, height);
  s +=
      fmt::format("<text x=\"12\" y=\"24\">{}</text>\n",
                  escaped(fmt::format("{}: {} in virtual time, {} a step", plan.name,
                                      count_str(static_cast<size_t>(options.steps), "step"), time_str(sim.period_ns))));
  const auto x = [&](double ns) { return kLeft + ns / sim.total_ns * (kWidth - kLeft - kRight); };
  constexpr const char* kColors[] = {"#2a6fbb", "#c8702a", "#3f8f5b", "#8a5fb0",
                                     "#b8485a", "#5a7d8c", "#9a8424", "#4f4fa8"};
  for (size_t i = 0; i < order.size(); ++i) {
    const double y = kTop + kLane * static_cast<double>(i);
    s += fmt::format(
        "<text x=\"12\" y=\"{:.1f}\">{}</text>\n<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" "
        "stroke=\"#ddd\"/>\n",
        y + 18, escaped(stream_label(plan, order[i])), kLeft, y + kLane - 4, kWidth - kRight, y + kLane - 4);
    for (const SimKernel& k : sim.kernels) {
      const int actor = sim.firings[k.firing].actor;
      if (plan.actors[actor].stream != order[i] || k.end_ns <= k.begin_ns) continue;
      s += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"24\" fill=\"{}\"><title>{}</title></rect>\n",
          x(k.begin_ns), y, std::max(0.3, x(k.end_ns) - x(k.begin_ns) - 0.3),
          kColors[static_cast<size_t>(actor) % std::size(kColors)],
          escaped(fmt::format("{} of {}, {}", plan.kernels[k.kernel].name, plan.actors[actor].name,
                              time_str(k.end_ns - k.begin_ns))));
    }
  }
  return s + fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n</svg>\n", kWidth - kRight,
                         height - 12, time_str(sim.total_ns));
}

}  // namespace sluice::plan_viz
