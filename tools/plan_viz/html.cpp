#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "plan/json/json.h"
#include "plan/placed.h"
#include "plan/time/cores.h"
#include "plan/verify.h"
#include "tools/plan_viz/page.h"
#include "tools/plan_viz/ranks_view.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr int kSteps = 4;              // enough for the pipeline to fill
constexpr double kUnknownCost = 1000;  // ns drawn per kernel when the plan predicts none
constexpr int kContext = 2;            // source lines on either side

// Lines of the user's files around the kernels' lines; a file that cannot be read is left out.
class Sources {
 public:
  explicit Sources(const std::string& root) : root_(root) {}

  void want(const SourceLocation& at) {
    if (!at.known()) return;
    const std::string key = at.str();
    if (snippets_.count(key)) return;
    const std::vector<std::string>& lines = file(at.file);
    if (lines.empty() || at.line > static_cast<int>(lines.size())) return;
    const int first = std::max(1, at.line - kContext),
              last = std::min(static_cast<int>(lines.size()), at.line + kContext);
    std::string s = fmt::format("{{\"line\":{},\"first\":{},\"lines\":[", at.line, first);
    for (int i = first; i <= last; ++i) s += (i > first ? "," : "") + quoted_json(lines[i - 1]);
    snippets_[key] = s + "]}";
  }

  std::string json() const {
    std::string s = "{";
    for (const auto& [key, snippet] : snippets_) s += (s.size() > 1 ? ",\n" : "") + quoted_json(key) + ":" + snippet;
    return s + "}";
  }

 private:
  const std::vector<std::string>& file(const std::string& name) {
    const auto [it, fresh] = files_.try_emplace(name);
    if (fresh) {
      const std::filesystem::path path = std::filesystem::path(root_) / name;  // an absolute name stays as it is
      // Plans from elsewhere may name anything: a pipe would never answer.
      std::error_code none;
      if (!std::filesystem::is_regular_file(path, none)) return it->second;
      std::ifstream in(path);
      for (std::string line; std::getline(in, line);) it->second.push_back(line);
    }
    return it->second;
  }
  std::string root_;
  std::map<std::string, std::vector<std::string>> files_;
  std::map<std::string, std::string> snippets_;
};

template <class List, class One>
std::string list(const List& entities, One one) {
  std::string s = "[";
  int i = 0;
  for (const auto& entity : entities) {
    if (i) s += ",\n";
    s += one(entity, i++);
  }
  return s + "]";
}

std::string views_json(const Plan& plan, const std::vector<View>& views) {
  return list(views, [&](const View& v, int) { return quoted_json(view_str(plan, v)); });
}

std::string simulated_data(const Simulation& sim) {
  std::string s = ",\n\"firings\":" + list(sim.firings, [](const SimFiring& f, int) {
                    return fmt::format("[{},{},{},{}]", f.actor, f.firing, f.begin_ns, f.end_ns);
                  });
  s += ",\n\"spans\":" + list(sim.kernels, [](const SimKernel& k, int) {
         return fmt::format("[{},{},{},{},{}]", k.kernel, k.firing, k.begin_ns, k.end_ns, k.met_ns);
       });
  return s;
}

// The recorded events, in the form of simulated ones: "firings", which also know their lane and step, and "spans"; then
// the requests. Instances run the same plan: each further one has lanes of its own, behind those of the plan's streams.
std::string served_data(const Plan& plan, const ServedTrace& served) {
  const int streams = static_cast<int>(plan.streams.size());
  std::string firings, spans, steps, requests;
  size_t count = 0;
  for (size_t s = 0; s < served.steps.size(); ++s) {
    const ServedStep& step = served.steps[s];
    steps += fmt::format("{}[[{}],{},{}]", s > 0 ? ",\n" : "", fmt::join(step.ids, ","), step.instance, step.number);
    std::map<int, std::vector<std::pair<size_t, const ServedEvent*>>> firings_of;  // by actor: numbers and times
    for (const ServedEvent& e : step.events) {
      if (e.kind != ServedEvent::Kind::kFiring) continue;
      const int lane = step.instance * streams + plan.actors[e.actor].stream;
      firings += fmt::format("{}[{},{},{},{},{},{}]", count > 0 ? ",\n" : "", e.actor, step.number, e.begin_ns,
                             e.end_ns, lane, s);
      firings_of[e.actor].emplace_back(count++, &e);
    }
    for (const ServedEvent& e : step.events) {
      if (e.kind != ServedEvent::Kind::kKernel) continue;
      for (const auto& [number, firing] : firings_of[e.actor]) {
        if (e.begin_ns < firing->begin_ns || e.end_ns > firing->end_ns) continue;
        spans += fmt::format("{}[{},{},{},{},{},{}]", spans.empty() ? "" : ",\n", e.kernel, number, e.begin_ns,
                             e.end_ns, e.begin_ns, e.kernels);
        break;
      }
    }
  }
  for (const ServedRequest& r : served.requests) {
    std::string stamps;
    for (const auto& [name, ns] : r.stamps)
      stamps += fmt::format("{}[{},{}]", stamps.empty() ? "" : ",", quoted_json(name), ns);
    requests +=
        fmt::format("{}{{\"n\":{},\"id\":{},\"m\":{},\"s\":[{}],\"t\":[{}]}}", requests.empty() ? "" : ",\n", r.id,
                    quoted_json(r.request_id), quoted_json(r.model + " " + r.version), fmt::join(r.steps, ","), stamps);
  }
  return fmt::format(",\n\"firings\":[{}],\n\"spans\":[{}],\n\"steps\":[{}],\n\"requests\":[{}]", firings, spans, steps,
                     requests);
}

int instances_of(const ServedTrace& served) {
  int count = 1;
  for (const ServedStep& step : served.steps) count = std::max(count, step.instance + 1);
  return count;
}

// The plan as the page draws it, run for a few steps.
struct Drawn {
  Plan plan;
  Simulation sim;
  std::vector<DeviceUse> uses;
  bool costs = false;  // the plan predicts some; else every kernel is drawn with the same
};

// A plan that is refused is drawn without its lanes: it may not even have a period.
Drawn drawn(const Plan& simulated, bool refused) {
  Drawn d{simulated, {}, {}, false};
  for (const Kernel& k : d.plan.kernels) d.costs |= k.cost_ns > 0;
  if (!d.costs) {
    for (Kernel& k : d.plan.kernels) k.cost_ns = kUnknownCost;
  }
  if (refused) return d;
  const int cores = cores_of_target(d.plan.target);
  d.sim = simulate(d.plan, {.steps = kSteps, .cores = cores});
  const Simulation steady = simulate(d.plan, {.steps = 8 * kSteps, .cores = cores});
  d.sim.period_ns = steady.period_ns;
  d.sim.critical = steady.critical;
  d.sim.peak_slots = steady.peak_slots;
  d.uses = device_use(d.plan, steady);
  return d;
}

// Streams, once for each instance that runs the plan, and the order in which their lanes stand.
std::string lanes_data(const Plan& plan, int instances) {
  const std::vector<int> order = streams_by_device(plan);
  std::vector<int> lanes;
  for (int i = 0; i < instances; ++i)
    for (const int stream : order) lanes.push_back(i * static_cast<int>(plan.streams.size()) + stream);
  std::vector<int> copies(lanes.size());
  std::iota(copies.begin(), copies.end(), 0);
  std::string s =
      ",\n\"streams\":" + list(copies, [&](int lane, int) {
        const auto instance = static_cast<size_t>(lane) / plan.streams.size();
        const Stream& v = plan.streams[static_cast<size_t>(lane) % plan.streams.size()];
        return fmt::format("{{\"n\":{},\"d\":\"{}\",\"r\":{},\"k\":\"{}\",\"c\":{},\"i\":{}}}", quoted_json(v.name),
                           v.device.str(), v.device.rank, stream_kind_name(v.kind), v.cores, instance);
      });
  return s + ",\n\"lanes\":" + list(lanes, [](int lane, int) { return std::to_string(lane); });
}

std::string devices_data(const std::vector<DeviceUse>& uses) {
  return ",\n\"devices\":" + list(uses, [](const DeviceUse& u, int) {
           return fmt::format("[\"{}\",{},{},{},{},{}]", u.device.str(), u.compute, u.communication, u.exposed,
                              u.bubble, u.bytes);
         });
}

// The collective calls of all groups, in the order in which they are met.
std::string calls_data(const Plan& given) {
  std::string calls;
  for (const Group& group : groups_of(given).groups) {
    for (size_t i = 0; i < group.calls.size(); ++i) {
      std::string kernels;
      for (const int k : group.calls[i].kernels) kernels += (kernels.empty() ? "" : ", ") + given.kernels[k].name;
      calls += fmt::format("{}[{},\"{}\",{},{},{},{}]", calls.empty() ? "" : ",\n", group.number,
                           fmt::join(group.ranks, ", "), i + 1, quoted_json(group.calls[i].op), group.calls[i].bytes,
                           quoted_json(kernels));
    }
  }
  return ",\n\"calls\":[" + calls + "]";
}

std::string actors_data(const Plan& plan) {
  return ",\n\"actors\":" + list(plan.actors, [](const Actor& v, int) {
           std::string program;
           for (const Instr& i : v.program)
             program += fmt::format("{}[{},{}]", program.empty() ? "" : ",", static_cast<int>(i.kind), i.index);
           return fmt::format("{{\"n\":{},\"s\":{},\"r\":\"{}\",\"p\":[{}]}}", quoted_json(v.name), v.stream,
                              actor_role_name(v.role), program);
         });
}

std::string kernels_data(const Plan& plan) {
  std::vector<int> actor_of(plan.kernels.size(), -1);
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    for (const Instr& i : plan.actors[a].program) {
      if (i.kind == InstrKind::kRun) actor_of[i.index] = static_cast<int>(a);
    }
  }
  std::vector<std::string> why(plan.kernels.size());
  for (PlacedKernel& placed : placed_kernels(plan)) why[placed.kernel] = std::move(placed.why);
  return ",\n\"kernels\":" + list(plan.kernels, [&](const Kernel& v, int k) {
           std::string attrs;
           for (const auto& [name, value] : v.attrs)
             attrs += (attrs.empty() ? "" : ", ") + name + "=" + attr_str(value);
           return fmt::format(
               "{{\"n\":{},\"op\":{},\"a\":{},\"i\":{},\"o\":{},\"w\":{},\"src\":{},\"m\":{},\"r\":{},\"c\":{},\"g\":{}"
               ","
               "\"y\":{},\"actor\":"
               "{}}}",
               quoted_json(v.name), quoted_json(v.op), quoted_json(attrs), views_json(plan, v.inputs),
               views_json(plan, v.outputs), v.workspace >= 0 ? plan.buffers[v.workspace].bytes : 0,
               quoted_json(v.source.str()), quoted_json(v.module), quoted_json(role_name(v.role)), v.cost_ns,
               v.collective, quoted_json(why[k]), actor_of[k]);
         });
}

std::string registers_data(const Plan& plan, const Simulation& sim) {
  const Adjacency adjacency(plan);
  std::string s =
      ",\n\"registers\":" + list(plan.registers, [&](const Register& v, int r) {
        std::string consumers;
        for (const int e : adjacency.register_edges[r]) {
          const Edge& edge = plan.edges[e];
          consumers += fmt::format("{}[{},{},{}]", consumers.empty() ? "" : ",", edge.consumer, edge.take, edge.hold);
        }
        const int space = v.slots.empty() ? -1 : plan.arenas[plan.buffers[v.slots[0]].arena].space;
        return fmt::format(
            "{{\"n\":{},\"p\":{},\"q\":{},\"b\":{},\"e\":[{}],\"em\":{},\"it\":{},\"ip\":{},\"sp\":\"{}\",\"pk\":{},"
            "\"ev\":\"{}\"}}",
            quoted_json(v.name), v.producer, v.quota, v.bytes, consumers, v.emit_every, v.initial_tokens,
            v.in_place_of < 0 ? -1 : plan.edges[v.in_place_of].reg, space < 0 ? "" : plan.spaces[space].str(),
            sim.peak_slots.empty() ? 0 : sim.peak_slots[r], events_of(plan, adjacency, r));
      });
  return s + ",\n\"edges\":" + list(plan.edges, [](const Edge& v, int) { return std::to_string(v.reg); });
}

std::string ledger_data(const Plan& plan, const Ledger& l) {
  return ",\n\"ledger\":" + list(l.lines, [&](const LedgerLine& line, int) {
           const bool arena = line.kind == LedgerLine::Kind::kArena;
           return fmt::format("[\"{}\",{},\"{}\",{},{}]", line_kind_name(line.kind), quoted_json(line_name(plan, line)),
                              plan.spaces[line.space].str(), line.bytes,
                              arena ? plan.arenas[line.index].lower_bound : line.bytes);
         });
}

// The data stands in a script element: nothing in it may close that.
std::string safe_in_script(const std::string& s) {
  std::string safe;
  safe.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    safe += s[i];
    if (s[i] == '<') safe.back() = '\\', safe += "u003c";
  }
  return safe;
}

// Everything the page draws. Short keys: the page of a large plan is mostly this.
std::string page_data(const Plan& given, const Plan& simulated, const std::string& source_root,
                      const ServedTrace* served) {
  const VerifyReport report = verify(given);
  const auto [plan, sim, uses, costs] = drawn(simulated, !report.ok());
  const Ledger l = ledger(plan);
  Sources sources(source_root);
  for (const Kernel& k : plan.kernels) sources.want(k.source);
  std::string s =
      fmt::format("{{\"name\":{},\"target\":{},\"costs\":{},\"period\":{},\"total\":{},\"critical\":{},\"bytes\":{}",
                  quoted_json(plan.name), quoted_json(plan.target), costs, sim.period_ns,
                  served != nullptr ? static_cast<double>(served->end_ns) : sim.total_ns,
                  quoted_json(critical_str(plan, sim.critical)), l.total);
  s += lanes_data(plan, served != nullptr ? instances_of(*served) : 1);
  s += devices_data(uses);
  s += calls_data(given);
  s += actors_data(plan);
  s += kernels_data(plan);
  s += registers_data(plan, sim);
  s += served != nullptr ? served_data(plan, *served) : simulated_data(sim);
  s += ledger_data(plan, l);
  s += fmt::format(",\n\"ok\":{},\"proof\":{}", report.ok(), quoted_json(verify_text(given, {.width = 110})));
  s += ",\n\"sources\":" + sources.json() + "}";
  return safe_in_script(s);
}

}  // namespace

std::string html_page(const Plan& plan, const Plan& simulated, const std::string& source_root,
                      const ServedTrace* served) {
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
         "content=\"width=device-width\">\n<title>" +
         escaped(plan.name) + " · plan</title>\n<style>" + kPageStyle + "</style>\n</head>\n" + kPageBody +
         "<script id=\"data\" type=\"application/json\">" + page_data(plan, simulated, source_root, served) +
         "</script>\n<script>" + kPageLanes + kPageRequests + kPageDetails + "</script>\n</body>\n</html>\n";
}

}  // namespace sluice::plan_viz
