#include <algorithm>
#include <map>
#include <set>

#include "plan/json/json.h"
#include "plan/ranks.h"
#include "plan/time/cores.h"
#include "plan/time/fast_quotas.h"
#include "tools/plan_viz/ranks_view.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr size_t kKernelsShown = 40;  // of one actor, without --all

class Tree {
 public:
  Tree(const Plan& plan, const TextOptions& options) : plan_(plan), options_(options), adjacency_(plan) {}

  std::string str() {
    line("", paint(fmt::format("plan '{}'", plan_.name), Color::kBold, options_) + "  " +
                 count_str(plan_.actors.size(), "actor") + ", " + count_str(plan_.kernels.size(), "kernel") + ", " +
                 count_str(plan_.registers.size(), "register") + ", " + count_str(plan_.streams.size(), "stream") +
                 ", " + short_bytes(ledger(plan_).total));
    std::map<DeviceId, std::vector<int>> devices;
    for (int s = 0; s < static_cast<int>(plan_.streams.size()); ++s) devices[plan_.streams[s].device].push_back(s);
    int rank = -1;
    for (const auto& [id, streams] : devices) {
      if (rank_count(plan_) > 1 && id.rank != rank) {
        rank = id.rank;
        line("", "");
        line("", paint(fmt::format("rank {}", rank), Color::kBold, options_));
      }
      line("", paint(id.str(), Color::kBold, options_));
      for (size_t i = 0; i < streams.size(); ++i) stream(streams[i], i + 1 == streams.size());
    }
    between_ranks();
    collectives();
    if (!plan_.inputs.empty() || !plan_.outputs.empty()) line("", "");
    for (const Input& i : plan_.inputs) {
      line("", fmt::format("input  {}: {}{}", i.name, dtype_name(i.spec.dtype), i.spec.shape.str()));
    }
    for (const Output& o : plan_.outputs) {
      line("", fmt::format("output {}: {}{}", o.name, dtype_name(o.view.spec.dtype), o.view.spec.shape.str()));
    }
    limits();
    return std::move(text_);
  }

 private:
  // For a plan that says what its kernels cost: what its pace depends on, and what one more slot would change.
  void limits() {
    const SimulateOptions steps{.steps = 16, .cores = cores_of_target(plan_.target)};
    if (rank_count(plan_) > 1 || std::none_of(plan_.actors.begin(), plan_.actors.end(), is_started)) return;
    const Simulation simulation = simulate(plan_, steps);
    if (simulation.critical.empty() || simulation.period_ns <= 0) return;
    line("", "");
    line("", fmt::format("limited by {}: {} a step, predicted", critical_str(plan_, simulation.critical),
                         time_str(simulation.period_ns)));
    const std::vector<SlotGain> gains = slot_gains(plan_, simulation, steps);
    if (gains.empty()) line("", "  nothing waits for a slot: more of them gain nothing");
    for (const SlotGain& gain : gains) {
      line("", fmt::format("  one more slot of '{}', {} more: {} a step", plan_.registers[gain.reg].name,
                           short_bytes(gain.bytes), time_str(gain.period_ns)));
    }
  }

  void line(const std::string& prefix, const std::string& text) {
    std::string s = cut(prefix + text, static_cast<size_t>(options_.width));
    while (!s.empty() && s.back() == ' ') s.pop_back();
    text_ += s + "\n";
  }

  void between_ranks() {
    const std::vector<Crossing> crossings = crossings_of(plan_);
    if (crossings.empty()) return;
    line("", "");
    line("", paint("between ranks", Color::kBold, options_));
    std::vector<std::vector<std::string>> rows;
    for (const Crossing& c : crossings) {
      const Register& reg = plan_.registers[c.reg];
      rows.push_back({reg.name, fmt::format("{} → {}", c.from, fmt::join(c.to, ", ")),
                      fmt::format("{} × {}", reg.quota, short_bytes(reg.bytes))});
    }
    text_ += table(rows, {false, false, true}, options_.width);
  }

  void collectives() {
    const Groups groups = groups_of(plan_);
    for (const Group& group : groups.groups) {
      line("", "");
      line("", paint(fmt::format("group {}", group.number), Color::kBold, options_) +
                   fmt::format("  ranks {}; {} a period", fmt::join(group.ranks, ", "),
                               count_str(group.calls.size(), "call")));
      for (size_t i = 0; i < group.calls.size() && (options_.all || i < kKernelsShown); ++i) {
        const Call& call = group.calls[i];
        std::string names;
        for (const int k : call.kernels) names += (names.empty() ? "" : ", ") + plan_.kernels[k].name;
        line("  ", fmt::format("{}. {}  {}  {}", i + 1, call.op, short_bytes(call.bytes), names));
      }
      if (!options_.all && group.calls.size() > kKernelsShown)
        line("  ", fmt::format("… {} (--all)", count_str(group.calls.size() - kKernelsShown, "more call")));
    }
    if (!groups.problem.empty()) line("", paint("not all calls are met: ", Color::kRed, options_) + groups.problem);
  }

  void stream(int s, bool last) {
    const Stream& stream = plan_.streams[s];
    const std::vector<int> actors = chain(plan_, s);
    line(last ? "└─ " : "├─ ", paint(fmt::format("stream {}", stream.name), Color::kBlue, options_) + "  " +
                                   count_str(stream.cores, "core") + ", " + count_str(actors.size(), "actor"));
    for (size_t i = 0; i < actors.size(); ++i) actor(actors[i], i, last ? "   " : "│  ", i + 1 == actors.size());
  }

  void actor(int a, size_t position, const std::string& prefix, bool last) {
    const Actor& actor = plan_.actors[a];
    double cost = 0;
    size_t kernels = 0;
    for (const Instr& i : actor.program) {
      if (i.kind != InstrKind::kRun) continue;
      cost += plan_.kernels[i.index].cost_ns;
      ++kernels;
    }
    std::string title = paint(fmt::format("{}. {}", position + 1, actor.name), Color::kGreen, options_);
    if (actor.role != ActorRole::kNormal) title += fmt::format(" ({})", actor_role_name(actor.role));
    if (kernels) title += "  " + count_str(kernels, "kernel");
    if (cost > 0) title += ", " + time_str(cost);
    line(prefix + (last ? "└─ " : "├─ "), title);
    const std::string inner = prefix + (last ? "   " : "│  ");
    std::vector<std::string> lines;
    size_t shown = 0;
    for (const int e : adjacency_.in_edges[a]) {
      const Edge& edge = plan_.edges[e];
      std::string s = fmt::format("◀ {}", plan_.registers[edge.reg].name);
      if (const int from = rank_of(plan_, plan_.registers[edge.reg].producer); from != rank_of(plan_, a))
        s += fmt::format(" from rank {}", from);
      if (edge.take > 1 || edge.hold > 1) s += fmt::format("  takes {} per {} firings", edge.take, edge.hold);
      lines.push_back(s);
    }
    for (const Instr& i : actor.program) {
      if (i.kind == InstrKind::kRun) {
        if (!options_.all && ++shown > kKernelsShown) continue;
        lines.push_back(kernel_line(plan_.kernels[i.index]));
      } else if (i.kind == InstrKind::kEmit) {
        lines.push_back("▶ " + register_line(i.index));
      } else {
        lines.push_back(
            paint(fmt::format("release {}", plan_.registers[plan_.edges[i.index].reg].name), Color::kDim, options_));
      }
    }
    if (shown > kKernelsShown)
      lines.push_back(fmt::format("… {} more (--all)", count_str(shown - kKernelsShown, "kernel")));
    for (size_t i = 0; i < lines.size(); ++i) line(inner + (i + 1 == lines.size() ? "└─ " : "├─ "), lines[i]);
  }

  std::string kernel_line(const Kernel& k) const {
    std::string s = "run " + k.name;
    if (k.op.size() && k.name.find(k.op) == std::string::npos) s += " (" + k.op + ")";
    if (k.cost_ns > 0) s += "  " + time_str(k.cost_ns);
    if (k.source.known()) {
      const std::string at = k.source.str();
      s += "  " + paint(at.substr(at.find_last_of('/') + 1), Color::kDim, options_);
    }
    if (k.role != Role::kForward) s += "  " + paint(role_name(k.role), Color::kDim, options_);
    if (!k.outputs.empty()) s += " → " + view_str(plan_, k.outputs[0]);
    if (k.collective >= 0) s += fmt::format("  collective {}", k.collective);
    return s;
  }

  std::string register_line(int r) const {
    const Register& reg = plan_.registers[r];
    std::string s = paint(reg.name, Color::kYellow, options_) + "  quota " + std::to_string(reg.quota);
    s += reg.bytes ? " × " + short_bytes(reg.bytes) : std::string(", control");
    if (reg.emit_every > 1) s += fmt::format(", every {} firings", reg.emit_every);
    if (reg.initial_tokens) s += ", " + count_str(reg.initial_tokens, "initial token");
    if (reg.in_place_of >= 0)
      s += fmt::format(", in place of {}", plan_.registers[plan_.edges[reg.in_place_of].reg].name);
    s += " → ";
    bool first = true;
    for (const int e : adjacency_.register_edges[r]) {
      const Actor& consumer = plan_.actors[plan_.edges[e].consumer];
      const int rank = rank_of(plan_, plan_.edges[e].consumer);
      s += (first ? "" : ", ") + consumer.name;
      if (rank != rank_of(plan_, reg.producer)) s += fmt::format(" on rank {}", rank);
      first = false;
    }
    return first ? s + "nobody" : s;
  }

  const Plan& plan_;
  const TextOptions& options_;
  const Adjacency adjacency_;
  std::string text_;
};

std::string groups_json(const Plan& plan) {
  std::string s = "[";
  for (const Group& group : groups_of(plan).groups) {
    s += fmt::format("{}\n  {{\"group\": {}, \"ranks\": [{}], \"calls\": [", s.size() > 1 ? "," : "", group.number,
                     fmt::join(group.ranks, ", "));
    const char* comma = "";
    for (const Call& call : group.calls) {
      std::string kernels;
      for (const int k : call.kernels) kernels += (kernels.empty() ? "" : ", ") + quoted_json(plan.kernels[k].name);
      s += fmt::format("{}\n    {{\"op\": {}, \"bytes\": {}, \"kernels\": [{}]}}", comma, quoted_json(call.op),
                       call.bytes, kernels);
      comma = ",";
    }
    s += "]}";
  }
  return s + "]";
}

struct OpStat {
  std::string op;
  size_t count = 0;
  double cost = 0;
};

std::vector<OpStat> op_stats(const Plan& plan) {
  std::map<std::string, OpStat> by_name;
  for (const Kernel& k : plan.kernels) {
    OpStat& s = by_name[k.op];
    s.op = k.op;
    ++s.count;
    s.cost += k.cost_ns;
  }
  std::vector<OpStat> stats;
  for (auto& [name, stat] : by_name) stats.push_back(stat);
  std::stable_sort(stats.begin(), stats.end(), [](const OpStat& a, const OpStat& b) {
    return std::pair(-a.cost, -static_cast<double>(a.count)) < std::pair(-b.cost, -static_cast<double>(b.count));
  });
  return stats;
}

struct Counts {
  size_t control = 0, crossing = 0, in_place = 0, messages = 0;
};

Counts count(const Plan& plan) {
  Counts c;
  for (const Register& r : plan.registers) {
    c.control += r.bytes == 0;
    c.in_place += r.in_place_of >= 0;
  }
  for (const Edge& e : plan.edges) {
    c.crossing += plan.actors[plan.registers[e.reg].producer].stream != plan.actors[e.consumer].stream;
  }
  c.messages = 2 * plan.edges.size();
  return c;
}

}  // namespace

std::string show_text(const Plan& plan, const TextOptions& options) { return Tree(plan, options).str(); }

std::string show_json(const Plan& plan) {
  const Adjacency adjacency(plan);
  std::string s = fmt::format("{{\"name\": {}, \"streams\": [", quoted_json(plan.name));
  for (size_t i = 0; i < plan.streams.size(); ++i) {
    const Stream& stream = plan.streams[i];
    s += fmt::format("{}\n  {{\"name\": {}, \"device\": \"{}\", \"kind\": \"{}\", \"cores\": {}, \"actors\": [",
                     i ? "," : "", quoted_json(stream.name), stream.device.str(), stream_kind_name(stream.kind),
                     stream.cores);
    bool first = true;
    for (const int a : chain(plan, static_cast<int>(i))) {
      const Actor& actor = plan.actors[a];
      s += fmt::format("{}\n    {{\"name\": {}, \"role\": \"{}\", \"program\": [", first ? "" : ",",
                       quoted_json(actor.name), actor_role_name(actor.role));
      first = false;
      for (size_t p = 0; p < actor.program.size(); ++p) {
        const Instr& instr = actor.program[p];
        const std::string& name = instr.kind == InstrKind::kRun    ? plan.kernels[instr.index].name
                                  : instr.kind == InstrKind::kEmit ? plan.registers[instr.index].name
                                                                   : plan.registers[plan.edges[instr.index].reg].name;
        s += fmt::format("{}[\"{}\", {}]", p ? ", " : "", instr_kind_name(instr.kind), quoted_json(name));
      }
      s += "]}";
    }
    s += "]}";
  }
  s += "],\n\"registers\": [";
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const Register& reg = plan.registers[r];
    s += fmt::format("{}\n  {{\"name\": {}, \"producer\": {}, \"quota\": {}, \"bytes\": {}, \"consumers\": [",
                     r ? "," : "", quoted_json(reg.name), quoted_json(plan.actors[reg.producer].name), reg.quota,
                     reg.bytes);
    for (size_t i = 0; i < adjacency.register_edges[r].size(); ++i) {
      s += (i ? ", " : "") + quoted_json(plan.actors[plan.edges[adjacency.register_edges[r][i]].consumer].name);
    }
    s += "]}";
  }
  s += "],\n\"between_ranks\": [";
  const char* comma = "";
  for (const Crossing& c : crossings_of(plan)) {
    const Register& reg = plan.registers[c.reg];
    s += fmt::format("{}\n  {{\"register\": {}, \"from\": {}, \"to\": [{}], \"bytes\": {}, \"quota\": {}}}", comma,
                     quoted_json(reg.name), c.from, fmt::join(c.to, ", "), reg.bytes, reg.quota);
    comma = ",";
  }
  return s + "],\n\"groups\": " + groups_json(plan) + "}\n";
}

std::string stats_text(const Plan& plan, const TextOptions& options) {
  const Counts c = count(plan);
  const Ledger l = ledger(plan);
  std::string s = paint(fmt::format("plan '{}'", plan.name), Color::kBold, options) + "\n";
  s += table({{"actors", std::to_string(plan.actors.size())},
              {"kernels", std::to_string(plan.kernels.size())},
              {"registers", std::to_string(plan.registers.size()),
               fmt::format("{} control, {} in place", c.control, c.in_place)},
              {"edges", std::to_string(plan.edges.size()), fmt::format("{} cross streams", c.crossing)},
              {"messages", std::to_string(c.messages), "per step at rate one: a ready and an ack per edge"},
              {"variables", std::to_string(plan.variables.size())},
              {"bytes", short_bytes(l.total),
               fmt::format("arenas {}, variables {}, constants {}, packed copies {}", short_bytes(l.arenas),
                           short_bytes(l.variables), short_bytes(l.constants), short_bytes(l.packed))}},
             {false, true, false}, options.width);
  s += "\n" + paint("kernels by predicted time", Color::kBold, options) + "\n";
  double total = 0;
  for (const Kernel& k : plan.kernels) total += k.cost_ns;
  std::vector<std::vector<std::string>> rows;
  for (const OpStat& o : op_stats(plan)) {
    rows.push_back({o.op, std::to_string(o.count), time_str(o.cost),
                    total > 0 ? fmt::format("{:.1f}%", 100 * o.cost / total) : "-"});
  }
  return s + table(rows, {false, true, true, true}, options.width);
}

std::string stats_json(const Plan& plan, const std::string& runs) {
  const Counts c = count(plan);
  const Ledger l = ledger(plan);
  std::string s = fmt::format(
      "{{\"name\": {}, \"actors\": {}, \"kernels\": {}, \"registers\": {}, \"control_registers\": {}, \"in_place\": "
      "{}, \"edges\": {}, "
      "\"crossing_edges\": {}, \"variables\": {}, \"bytes\": {}, \"ops\": [",
      quoted_json(plan.name), plan.actors.size(), plan.kernels.size(), plan.registers.size(), c.control, c.in_place,
      plan.edges.size(), c.crossing, plan.variables.size(), l.total);
  bool first = true;
  for (const OpStat& o : op_stats(plan)) {
    s += fmt::format("{}{{\"op\": {}, \"count\": {}, \"cost_ns\": {}}}", first ? "" : ", ", quoted_json(o.op), o.count,
                     o.cost);
    first = false;
  }
  return s + "],\n\"runs\": " + runs + "}\n";
}

}  // namespace sluice::plan_viz
