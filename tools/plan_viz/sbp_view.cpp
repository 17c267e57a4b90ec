#include "tools/plan_viz/sbp_view.h"

#include "compiler/compiler.h"
#include "compiler/sbp_search.h"
#include "plan/json/json.h"
#include "tools/plan_viz/any_machine.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {
namespace {

std::string number(double value) { return short_bytes(static_cast<uint64_t>(value + 0.5)); }

std::string line_of(const char* policy, const LayoutCost& cost) {
  return fmt::format("{}: {} in {}, {:.4g} flops on the first device\n", policy, number(cost.bytes),
                     count_str(static_cast<size_t>(cost.conversions), "conversion"), cost.flops);
}

std::string text_of(const std::string& name, const LayoutSearch& greedy, const LayoutSearch& found, int width) {
  std::string text = fmt::format("graph '{}': what travels between devices in a step\n", name) +
                     line_of("greedy", greedy.greedy) + line_of("cost  ", found.found) +
                     fmt::format("{} of layouts looked at\n", count_str(static_cast<size_t>(found.tried), "plan"));
  if (found.candidates.empty()) return text + "every value lies as the program says; --ignore-user-sbp frees them\n";
  std::vector<std::vector<std::string>> rows = {{"value", "type", "sbp", "chosen", "bytes", "conversions", "flops"}};
  const std::string* last = nullptr;
  for (const LayoutCandidate& c : found.candidates) {
    const bool same = last != nullptr && *last == c.value;
    last = &c.value;
    const std::string value = c.alike > 1 ? fmt::format("{} and {} alike", c.value, c.alike - 1) : c.value;
    rows.push_back({same ? "" : value, same ? "" : c.type, c.sbp, c.chosen ? "cost" : "", number(c.cost.bytes),
                    std::to_string(c.cost.conversions), fmt::format("{:.4g}", c.cost.flops)});
  }
  // The greedy policy's layouts are the first of each value of its own search.
  for (size_t i = 1; i < rows.size(); ++i) {
    const LayoutCandidate& c = found.candidates[i - 1];
    for (const LayoutCandidate& g : greedy.candidates)
      if (g.chosen && g.value == c.value && g.sbp == c.sbp && g.type == c.type) {
        std::string& mark = rows[i][3];
        mark = mark.empty() ? "greedy" : "both";
        break;
      }
  }
  return text + table(rows, {false, false, false, false, true, true, true}, width);
}

std::string json_of(const LayoutCost& cost) {
  return fmt::format("{{\"bytes\": {}, \"conversions\": {}, \"flops\": {}}}", cost.bytes, cost.conversions, cost.flops);
}

std::string json_of(const std::string& name, const LayoutSearch& greedy, const LayoutSearch& found) {
  std::string s = fmt::format("{{\"name\": {}, \"greedy\": {}, \"cost\": {}, \"tried\": {}, \"candidates\": [",
                              plan::quoted_json(name), json_of(greedy.greedy), json_of(found.found), found.tried);
  const char* comma = "";
  for (const LayoutCandidate& c : found.candidates) {
    s += fmt::format("{}\n  {{\"value\": {}, \"alike\": {}, \"type\": {}, \"sbp\": {}, \"chosen\": {}, \"cost\": {}}}",
                     comma, plan::quoted_json(c.value), c.alike, plan::quoted_json(c.type), plan::quoted_json(c.sbp),
                     c.chosen, json_of(c.cost));
    comma = ",";
  }
  return s + "]}\n";
}

}  // namespace

std::string sbp_view(graph::Graph graph, const SbpViewOptions& options, const TextOptions& text, bool json) {
  SLUICE_CHECK(compiler::is_global(graph),
               "sbp: graph '{}' lies on one device; the view is of graphs that name a placement (to_global)",
               graph.name);
  const std::string name = graph.name;
  CompileOptions before;  // the graph as the compiler lays it out
  before.name = name;
  before.until = "patterns";
  graph = compile(std::move(graph), AnyMachine(), before).graph;
  compiler::SbpSearchOptions search{options.ignore_user, options.compute_ratio, options.wait_bytes, false};
  LayoutSearch greedy, found;
  compiler::search_sbp(graph, nullptr, search, &greedy);
  search.moves = true;
  compiler::search_sbp(graph, nullptr, search, &found);
  return json ? json_of(name, greedy, found) : text_of(name, greedy, found, text.width);
}

}  // namespace sluice::plan_viz
