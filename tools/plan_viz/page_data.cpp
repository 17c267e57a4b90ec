// The data of the page: the plan, what it is forecast to do, and what it did.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "plan/json/json.h"
#include "plan/placed.h"
#include "plan/verify.h"
#include "tools/plan_viz/page.h"
#include "tools/plan_viz/ranks_view.h"
#include "tools/plan_viz/summary.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr int kContext = 2;  // source lines on either side

// Lines of the user's files around the kernels' lines; a file that cannot be read is left out.
class Sources {
 public:
  explicit Sources(const std::vector<std::string>& roots) : roots_(roots) {}

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
    if (!fresh) return it->second;
    for (const std::string& root : roots_) {
      const std::filesystem::path path = std::filesystem::path(root) / name;  // an absolute name stays as it is
      // Plans from elsewhere may name anything: a pipe would never answer.
      std::error_code none;
      if (!std::filesystem::is_regular_file(path, none)) continue;
      std::ifstream in(path);
      for (std::string line; std::getline(in, line);) it->second.push_back(line);
      break;
    }
    return it->second;
  }
  std::vector<std::string> roots_;
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

// A column of what `one` says of each entity: texts in JSON, or numbers.
template <class List, class One>
std::string texts_of(const List& entities, One one) {
  std::string s = "[";
  for (const auto& entity : entities) s += fmt::format("{}{}", s.size() > 1 ? "," : "", one(entity));
  return s + "]";
}
template <class List, class One>
std::string column_of(const List& entities, One one) {
  std::vector<int64_t> numbers;
  for (const auto& entity : entities) numbers.push_back(static_cast<int64_t>(one(entity)));
  return column(numbers);
}

template <class List>
std::string names_of(const List& entities) {
  return texts_of(entities, [](const auto& entity) { return quoted_json(entity.name); });
}

std::string streams_data(const Plan& plan) {
  return ",\n\"streams\":" +
         list(plan.streams,
              [](const Stream& v, int) {
                return fmt::format("{{\"n\":{},\"d\":\"{}\",\"r\":{},\"k\":\"{}\",\"c\":{}}}", quoted_json(v.name),
                                   v.device.str(), v.device.rank, stream_kind_name(v.kind), v.cores);
              }) +
         fmt::format(",\n\"order\":[{}]", fmt::join(streams_by_device(plan), ","));
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

// An instruction is its kind and four times its index.
std::string actors_data(const Plan& plan, Strings& strings) {
  std::vector<int64_t> lengths, program;
  for (const Actor& actor : plan.actors) {
    lengths.push_back(static_cast<int64_t>(actor.program.size()));
    for (const Instr& i : actor.program) program.push_back(static_cast<int64_t>(i.kind) + 4 * int64_t{i.index});
  }
  return fmt::format(",\n\"actors\":{{\"n\":{},\"stream\":{},\"role\":{},\"length\":{},\"program\":{}}}",
                     names_of(plan.actors), column_of(plan.actors, [](const Actor& v) { return v.stream; }),
                     column_of(plan.actors, [&](const Actor& v) { return strings.number(actor_role_name(v.role)); }),
                     column(lengths), counted(program));
}

// Views of all kernels, one after the other: what they are of (a kind and four times the index; -1: absent) and the
// rest of their text.
std::string views_data(const Plan& plan, Strings& strings) {
  std::vector<int64_t> inputs, outputs, bases, types;
  const auto add = [&](const View& view) {
    const std::string text = view_str(plan, view);
    bases.push_back(is_absent(view) ? -1 : static_cast<int64_t>(view.base) + 4 * int64_t{view.index});
    types.push_back(strings.number(is_absent(view) ? "" : text.substr(base_name(plan, view).size() + 1)));
  };
  for (const Kernel& k : plan.kernels) {
    inputs.push_back(static_cast<int64_t>(k.inputs.size()));
    outputs.push_back(static_cast<int64_t>(k.outputs.size()));
    for (const View& view : k.inputs) add(view);
    for (const View& view : k.outputs) add(view);
  }
  return fmt::format(",\"inputs\":{},\"outputs\":{},\"base\":{},\"type\":{}", column(inputs), column(outputs),
                     counted(bases), counted(types));
}

std::string kernels_data(const Plan& plan, Strings& strings) {
  std::vector<std::string> why(plan.kernels.size());
  for (PlacedKernel& placed : placed_kernels(plan)) why[placed.kernel] = std::move(placed.why);
  const auto texts = [&](auto text) {
    return column_of(plan.kernels, [&](const Kernel& k) { return strings.number(text(k)); });
  };
  const auto attrs_of = [](const Kernel& k) {
    std::string attrs;
    for (const auto& [name, value] : k.attrs) attrs += (attrs.empty() ? "" : ", ") + name + "=" + attr_str(value);
    return attrs;
  };
  std::string s = ",\n\"kernels\":{\"n\":" + names_of(plan.kernels);
  s += ",\"op\":" + texts([](const Kernel& k) { return k.op; });
  s += ",\"attrs\":" + texts(attrs_of);
  s += ",\"source\":" + texts([](const Kernel& k) { return k.source.str(); });
  s += ",\"module\":" + texts([](const Kernel& k) { return k.module; });
  s += ",\"role\":" + texts([](const Kernel& k) { return std::string(role_name(k.role)); });
  s += ",\"why\":" + texts([&](const Kernel& k) { return why[&k - plan.kernels.data()]; });
  s += ",\"cost\":" + texts_of(plan.kernels, [](const Kernel& k) { return fmt::format("{:.5g}", k.cost_ns); });
  s += ",\"group\":" + column_of(plan.kernels, [](const Kernel& k) { return k.collective; });
  s += ",\"workspace\":" + column_of(plan.kernels, [](const Kernel& k) { return k.workspace; });
  return s + views_data(plan, strings) + "}";
}

std::string registers_data(const Plan& plan, const Simulation& sim, Strings& strings) {
  const Adjacency adjacency(plan);
  const std::vector<Register>& registers = plan.registers;
  std::vector<int64_t> slots, peaks, events;
  for (size_t r = 0; r < registers.size(); ++r) {
    slots.insert(slots.end(), registers[r].slots.begin(), registers[r].slots.end());
    peaks.push_back(sim.peak_slots.empty() ? 0 : sim.peak_slots[r]);
    events.push_back(strings.number(events_of(plan, adjacency, static_cast<int>(r))));
  }
  std::string s = ",\n\"registers\":{\"n\":" + names_of(registers);
  s += ",\"producer\":" + column_of(registers, [](const Register& v) { return v.producer; });
  s += ",\"quota\":" + column_of(registers, [](const Register& v) { return v.quota; });
  s += ",\"bytes\":" + column_of(registers, [](const Register& v) { return v.bytes; });
  s += ",\"emit\":" + column_of(registers, [](const Register& v) { return v.emit_every; });
  s += ",\"initial\":" + column_of(registers, [](const Register& v) { return v.initial_tokens; });
  s += ",\"inPlace\":" +
       column_of(registers, [&](const Register& v) { return v.in_place_of < 0 ? -1 : plan.edges[v.in_place_of].reg; });
  s += fmt::format(",\"peak\":{},\"events\":{},\"slots\":{}}}", column(peaks), column(events), counted(slots));
  return s + fmt::format(",\n\"edges\":{{\"count\":{},\"reg\":{},\"consumer\":{},\"take\":{},\"hold\":{}}}",
                         plan.edges.size(), column_of(plan.edges, [](const Edge& v) { return v.reg; }),
                         column_of(plan.edges, [](const Edge& v) { return v.consumer; }),
                         column_of(plan.edges, [](const Edge& v) { return v.take; }),
                         column_of(plan.edges, [](const Edge& v) { return v.hold; }));
}

std::string memory_data(const Plan& plan) {
  int64_t budget = 0;
  for (const auto& [name, value] : plan.options) {
    if (name == "memory_budget" && std::holds_alternative<int64_t>(value)) budget = std::get<int64_t>(value);
  }
  std::string s = fmt::format(",\n\"budget\":{},\"spaces\":", budget);
  s += texts_of(plan.spaces, [](const Space& v) { return quoted_json(v.str()); });
  s += ",\n\"arenas\":" + list(plan.arenas, [](const Arena& v, int) {
         return fmt::format("{{\"n\":{},\"space\":{},\"bytes\":{}}}", quoted_json(v.name), v.space, v.bytes);
       });
  s += ",\n\"buffers\":{\"n\":" + names_of(plan.buffers);
  s += ",\"arena\":" + column_of(plan.buffers, [](const Buffer& v) { return v.arena; });
  s += ",\"offset\":" + column_of(plan.buffers, [](const Buffer& v) { return v.offset; });
  s += ",\"bytes\":" + column_of(plan.buffers, [](const Buffer& v) { return v.bytes; }) + "}";
  return s + ",\n\"variables\":" + names_of(plan.variables);
}

// Actors and registers of the cycle that limits the plan.
std::string cycle_data(const Drawn& shown) {
  std::vector<int64_t> registers;
  for (const CriticalHop& hop : shown.sim.critical) {
    const bool waits = hop.reason == CriticalHop::Reason::kData || hop.reason == CriticalHop::Reason::kCredit;
    if (waits) registers.push_back(hop.reg);
  }
  return fmt::format(",\"cycle\":{},\"cycleRegisters\":{}", plain(shown.critical), plain(registers));
}

std::string ledger_data(const Plan& plan, const Ledger& l) {
  return ",\n\"ledger\":" + list(l.lines, [&](const LedgerLine& line, int) {
           const bool arena = line.kind == LedgerLine::Kind::kArena;
           return fmt::format("[\"{}\",{},\"{}\",{},{}]", line_kind_name(line.kind), quoted_json(line_name(plan, line)),
                              plan.spaces[line.space].str(), line.bytes,
                              arena ? plan.arenas[line.index].lower_bound : line.bytes);
         });
}

}  // namespace

int64_t Strings::number(const std::string& text) {
  const auto [it, fresh] = numbers_.try_emplace(text, static_cast<int64_t>(numbers_.size()));
  if (fresh) texts_.push_back(&it->first);
  return it->second;
}

std::string Strings::json() const {
  return texts_of(texts_, [](const std::string* text) { return quoted_json(*text); });
}

std::string plain(const std::vector<int64_t>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ",")); }

namespace {

bool all_same(const std::vector<int64_t>& numbers) {
  return numbers.size() > 1 && std::ranges::all_of(numbers, [&](int64_t n) { return n == numbers[0]; });
}

// Numbers beyond this lose digits when the page adds them up.
constexpr int64_t kMostSummed = int64_t{1} << 52;

}  // namespace

std::string counted(const std::vector<int64_t>& numbers) {
  std::string as_they_are = plain(numbers);
  const auto adds_up = [](int64_t n) { return -kMostSummed < n && n < kMostSummed; };
  if (numbers.size() < 3 || !std::ranges::all_of(numbers, adds_up)) return as_they_are;
  std::vector<int64_t> more;
  for (size_t i = 1; i < numbers.size(); ++i) more.push_back(numbers[i] - numbers[i - 1]);
  std::string differences = fmt::format("{{\"first\":{},\"count\":{},\"more\":{}}}", numbers[0], numbers.size(),
                                        all_same(more) ? std::to_string(more[0]) : plain(more));
  return differences.size() < as_they_are.size() ? differences : as_they_are;
}

std::string column(const std::vector<int64_t>& numbers) {
  return all_same(numbers) ? std::to_string(numbers[0]) : counted(numbers);
}

std::string page_json(const Page& page) {
  const Plan& given = *page.plan;
  const VerifyReport report = verify(given);
  const Drawn shown = drawn(page, !report.ok());
  const Plan& plan = shown.plan;
  const Ledger l = ledger(plan);
  Sources sources(page.source_roots);
  for (const Kernel& k : plan.kernels) sources.want(k.source);
  Strings strings;
  std::string s = fmt::format("{{\"name\":{},\"target\":{},\"costs\":{},\"period\":{},\"critical\":{},\"bytes\":{}",
                              quoted_json(plan.name), quoted_json(plan.target), shown.costs, shown.sim.period_ns,
                              quoted_json(critical_str(plan, shown.sim.critical)), l.total);
  if (!page.live.empty()) s += ",\"live\":" + page.live;
  s += cycle_data(shown) + streams_data(plan) + devices_data(shown.uses) + calls_data(given);
  s += actors_data(plan, strings) + kernels_data(plan, strings) + registers_data(plan, shown.sim, strings);
  s += memory_data(plan) + ledger_data(plan, l);
  s += fmt::format(",\n\"ok\":{},\"proof\":{}", report.ok(), quoted_json(verify_text(given, {.width = 110})));
  s += ",\n\"sources\":" + sources.json() + ",\n\"strings\":" + strings.json();
  s += ",\n\"runs\":[";
  const char* comma = "";
  for (const Run& run : shown.runs) {
    const RunSummary summary = summary_of(plan, run, shown.critical);
    s += std::exchange(comma, ",\n") + run_json(plan, run, panels_json(plan, run, summary));
  }
  return s + "]}";
}

}  // namespace sluice::plan_viz
