#include <map>

#include "plan/json/json.h"
#include "plan/pack/spilled.h"
#include "plan/verify.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

// Share of the actor sequence of one period in which a buffer is touched, for the map: [begin, end) of the
// certificate's program instructions.
struct Extent {
  int64_t begin = -1, end = -1;
};

std::vector<Extent> extents(const Plan& plan, int64_t& total) {
  std::vector<Extent> extents(plan.buffers.size());
  const auto touch = [&](int buffer, int64_t now) {
    Extent& e = extents[buffer];
    if (e.begin < 0) e.begin = now;
    e.end = now + 1;
  };
  total = 0;
  for (const int a : plan.certificate) {
    for (const Instr& i : plan.actors[a].program) {
      const auto view = [&](const View& v) {
        if (is_absent(v) || v.base == BaseKind::kVariable) return;
        if (v.base == BaseKind::kBuffer) touch(v.index, total);
        if (v.base == BaseKind::kRegister) {
          for (const int slot : plan.registers[v.index].slots) touch(slot, total);
        }
      };
      if (i.kind == InstrKind::kRun) {
        const Kernel& k = plan.kernels[i.index];
        for (const View& v : k.inputs) view(v);
        for (const View& v : k.outputs) view(v);
        if (k.workspace >= 0) touch(k.workspace, total);
      } else {
        const int reg = i.kind == InstrKind::kEmit ? i.index : plan.edges[i.index].reg;
        for (const int slot : plan.registers[reg].slots) touch(slot, total);
      }
      ++total;
    }
  }
  return extents;
}

// The largest of the workspaces that kernels have.
uint64_t largest_workspace(const Plan& plan) {
  uint64_t largest = 0;
  for (const Kernel& k : plan.kernels) {
    if (k.workspace >= 0) largest = std::max(largest, plan.buffers[k.workspace].bytes);
  }
  return largest;
}

}  // namespace

std::string mem_text(const Plan& plan, const TextOptions& options) {
  const Ledger l = ledger(plan);
  std::string s = paint(fmt::format("plan '{}' needs {}", plan.name, bytes_str(l.total)), Color::kBold, options) + "\n";
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < plan.spaces.size(); ++i) {
    rows.push_back({plan.spaces[i].str(), short_bytes(l.space_bytes[i]), fmt::format("{}", l.space_bytes[i])});
  }
  s += table(rows, {false, true, true}, options.width);
  s += "\n" + paint("ledger", Color::kBold, options) + "\n";
  rows.clear();
  std::vector<LedgerLine> lines = l.lines;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const LedgerLine& a, const LedgerLine& b) { return a.bytes > b.bytes; });
  constexpr size_t kLines = 30;
  for (size_t i = 0; i < lines.size() && (options.all || i < kLines); ++i) {
    rows.push_back({line_kind_name(lines[i].kind), line_name(plan, lines[i]), plan.spaces[lines[i].space].str(),
                    short_bytes(lines[i].bytes), line_note(plan, lines[i])});
  }
  s += table(rows, {false, false, false, true, false}, options.width);
  if (!options.all && lines.size() > kLines) s += fmt::format("  … {} more (--all)\n", lines.size() - kLines);
  s += fmt::format(
      "  in the arenas, before sharing: register slots {}, workspaces {}{}, intermediates {}\n",
      short_bytes(l.register_slots), short_bytes(l.workspaces),
      l.workspaces > 0 ? fmt::format(" ({} at most for a kernel)", short_bytes(largest_workspace(plan))) : "",
      short_bytes(l.intermediates));
  if (const Spilled disk = spilled(plan); disk.values > 0)
    s += fmt::format("  on the disk between two uses: {} values, {}, in a file of {}\n", disk.values,
                     short_bytes(disk.bytes), short_bytes(disk.file_bytes));

  int64_t total = 0;
  const std::vector<Extent> life = extents(plan, total);
  std::vector<std::vector<int>> buffers(plan.arenas.size());
  for (int b = 0; b < static_cast<int>(plan.buffers.size()); ++b) buffers[plan.buffers[b].arena].push_back(b);
  const size_t bar = static_cast<size_t>(std::clamp(options.width - 62, 16, 80));
  for (size_t a = 0; a < plan.arenas.size(); ++a) {
    const Arena& arena = plan.arenas[a];
    s += "\n" + paint(fmt::format("arena '{}'", arena.name), Color::kBlue, options) +
         fmt::format("  {}, {}, {}; lower bound {}\n", plan.spaces[arena.space].str(),
                     arena.stream < 0 ? "disjoint" : "shared along " + plan.streams[arena.stream].name,
                     bytes_str(arena.bytes), short_bytes(arena.lower_bound));
    std::vector<int>& list = buffers[a];
    std::stable_sort(list.begin(), list.end(),
                     [&](int x, int y) { return plan.buffers[x].offset < plan.buffers[y].offset; });
    constexpr size_t kBuffers = 40;
    for (size_t i = 0; i < list.size() && (options.all || i < kBuffers); ++i) {
      const Buffer& b = plan.buffers[list[i]];
      const Extent& e = life[list[i]];
      std::string lane;
      for (size_t c = 0; c < bar; ++c) {
        const int64_t from = total * static_cast<int64_t>(c) / static_cast<int64_t>(bar);
        const int64_t to = std::max(from + 1, total * static_cast<int64_t>(c + 1) / static_cast<int64_t>(bar));
        lane += e.begin < to && e.end > from ? "█" : "·";
      }
      s += cut(fmt::format("  {:>10} {:>10}  ", b.offset, short_bytes(b.bytes)) + padded(cut(b.name, 32), 32) + "  " +
                   lane,
               options.width) +
           "\n";
    }
    if (!options.all && list.size() > kBuffers) s += fmt::format("  … {} more (--all)\n", list.size() - kBuffers);
  }
  if (total > 0) s += "\n  bars: one period, first to last use, in the order of the certificate\n";
  return s;
}

std::string mem_json(const Plan& plan) {
  const Ledger l = ledger(plan);
  int64_t total = 0;
  const std::vector<Extent> life = extents(plan, total);
  std::string s = fmt::format(
      "{{\"name\": {}, \"total\": {}, \"arenas_total\": {}, \"variables_total\": {}, \"constants_total\": {}, "
      "\"packed_total\": {}, \"largest_workspace\": {}, \"spilled\": {}, \"spaces\": [",
      quoted_json(plan.name), l.total, l.arenas, l.variables, l.constants, l.packed, largest_workspace(plan),
      spilled(plan).bytes);
  for (size_t i = 0; i < plan.spaces.size(); ++i) {
    s += fmt::format("{}{{\"space\": \"{}\", \"bytes\": {}}}", i ? ", " : "", plan.spaces[i].str(), l.space_bytes[i]);
  }
  s += "],\n\"lines\": [";
  for (size_t i = 0; i < l.lines.size(); ++i) {
    s += fmt::format("{}\n  {{\"kind\": \"{}\", \"name\": {}, \"space\": \"{}\", \"bytes\": {}, \"note\": {}}}",
                     i ? "," : "", line_kind_name(l.lines[i].kind), quoted_json(line_name(plan, l.lines[i])),
                     plan.spaces[l.lines[i].space].str(), l.lines[i].bytes, quoted_json(line_note(plan, l.lines[i])));
  }
  s += "],\n\"buffers\": [";
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    s += fmt::format(
        "{}\n  {{\"name\": {}, \"arena\": {}, \"offset\": {}, \"bytes\": {}, \"first_use\": {}, \"last_use\": {}}}",
        b ? "," : "", quoted_json(buffer.name), quoted_json(plan.arenas[buffer.arena].name), buffer.offset,
        buffer.bytes, life[b].begin, life[b].end - 1);
  }
  return s + fmt::format("],\n\"period_instructions\": {}}}\n", total);
}

std::string verify_text(const Plan& plan, const TextOptions& options) {
  const VerifyReport report = verify(plan);
  if (!report.ok()) {
    std::string s = paint(fmt::format("plan '{}' is refused", plan.name), Color::kRed, options) + "\n";
    for (const Problem& p : report.problems) s += fmt::format("  {}: {}\n", p.concern, p.text);
    return s;
  }
  std::string s = paint(fmt::format("plan '{}' holds", plan.name), Color::kGreen, options) + "\n";
  s += "  structure, sizes, rates, liveness, arenas and collectives were checked\n";
  s += fmt::format("  proof: {} of {}, fired in this order, return every register to its initial state\n",
                   count_str(report.certificate.size(), "firing"), count_str(plan.actors.size(), "actor"));
  s += report.certificate_given ? "  (the plan's own certificate, re-checked step by step)\n"
                                : "  (the plan has none; found by greedy execution)\n";
  std::string line = "  ";
  size_t run = 0;
  for (size_t i = 0; i < report.certificate.size(); i += run) {
    run = 1;
    while (i + run < report.certificate.size() && report.certificate[i + run] == report.certificate[i]) ++run;
    std::string step = plan.actors[report.certificate[i]].name + (run > 1 ? fmt::format("×{}", run) : "");
    if (columns(line) + columns(step) + 1 > static_cast<size_t>(options.width)) {
      s += line + "\n";
      line = "  ";
    }
    line += (line.size() > 2 ? " " : "") + step;
  }
  return s + line + "\n";
}

std::string verify_json(const Plan& plan) {
  const VerifyReport report = verify(plan);
  std::string s = fmt::format("{{\"name\": {}, \"ok\": {}, \"problems\": [", quoted_json(plan.name), report.ok());
  for (size_t i = 0; i < report.problems.size(); ++i) {
    s += fmt::format("{}{{\"concern\": \"{}\", \"text\": {}}}", i ? ", " : "", report.problems[i].concern,
                     quoted_json(report.problems[i].text));
  }
  s += "], \"repetitions\": [";
  for (size_t i = 0; i < report.repetitions.size(); ++i) s += fmt::format("{}{}", i ? ", " : "", report.repetitions[i]);
  s += "], \"certificate\": [";
  for (size_t i = 0; i < report.certificate.size(); ++i) {
    s += (i ? ", " : "") + quoted_json(plan.actors[report.certificate[i]].name);
  }
  return s + fmt::format("], \"certificate_given\": {}}}\n", report.certificate_given);
}

}  // namespace sluice::plan_viz
