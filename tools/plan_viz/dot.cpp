#include <map>

#include "plan/ranks.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

std::string quoted(const std::string& text) {
  std::string s = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += c;
  }
  return s + "\"";
}

}  // namespace

std::string dot_text(const Plan& plan) {
  std::string s = fmt::format(
      "digraph {} {{\n  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n  edge "
      "[fontname=\"sans-serif\", fontsize=10];\n",
      quoted(plan.name));
  std::map<DeviceId, std::vector<int>> devices;
  for (int i = 0; i < static_cast<int>(plan.streams.size()); ++i) devices[plan.streams[i].device].push_back(i);
  const bool ranks = rank_count(plan) > 1;
  int cluster = 0, rank = -1;
  for (const auto& [device, streams] : devices) {
    if (ranks && device.rank != rank) {
      if (rank >= 0) s += "  }\n";
      rank = device.rank;
      s += fmt::format("  subgraph cluster_{} {{\n  label=\"rank {}\"; bgcolor=\"#eef1f5\";\n", cluster++, rank);
    }
    s += fmt::format("  subgraph cluster_{} {{\n    label={};\n", cluster++, quoted(device.str()));
    for (const int stream : streams) {
      s += fmt::format("    subgraph cluster_{} {{\n      label={}; style=dashed;\n", cluster++,
                       quoted(plan.streams[stream].name));
      for (const int a : chain(plan, stream)) {
        size_t kernels = 0;
        for (const Instr& i : plan.actors[a].program) kernels += i.kind == InstrKind::kRun;
        const char* shape = plan.actors[a].role == ActorRole::kNormal ? "box" : "ellipse";
        s += fmt::format("      a{} [label={}, shape={}];\n", a,
                         quoted(plan.actors[a].name + (kernels ? "\n" + count_str(kernels, "kernel") : "")), shape);
      }
      s += "    }\n";
    }
    s += "  }\n";
  }
  if (ranks) s += "  }\n";
  for (const Edge& e : plan.edges) {
    const Register& r = plan.registers[e.reg];
    const std::string label = r.bytes ? fmt::format("{} ×{} {}", r.name, r.quota, short_bytes(r.bytes))
                                      : fmt::format("{} ×{}", r.name, r.quota);
    s += fmt::format("  a{} -> a{} [label={}{}{}];\n", r.producer, e.consumer, quoted(label),
                     r.bytes ? "" : ", style=dotted",
                     rank_of(plan, r.producer) != rank_of(plan, e.consumer) ? ", color=\"#c2410c\", penwidth=2" : "");
  }
  // Those who meet in a group's calls.
  for (const auto& [group, members] : callers_of_groups(plan)) {
    for (size_t m = 1; m < members.size(); ++m)
      s += fmt::format(
          "  a{} -> a{} [label=\"group {}\", dir=none, style=dashed, color=\"#2563eb\", constraint=false];\n",
          members[m - 1], members[m], group);
  }
  return s + "}\n";
}

}  // namespace sluice::plan_viz
