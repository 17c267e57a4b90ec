#include "tools/plan_viz/live_view.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/json/json.h"
#include "plan/verify.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr size_t kMostListed = 12;

Plan checked(Plan plan) {
  VerifyReport structure;
  verify_structure(plan, structure);
  SLUICE_CHECK(structure.ok(), "plan '{}': {}: {}", plan.name, structure.problems[0].concern,
               structure.problems[0].text);
  return plan;
}

// A counter's rate per second. Counters begin anew when a session is reset.
double rate(uint64_t from, uint64_t to, double seconds) {
  return to < from || seconds <= 0 ? 0 : static_cast<double>(to - from) / seconds;
}

struct ActorUse {
  double firings_s = 0;
  double busy = 0;        // of the time
  Doing most;             // what it did in most samples
  double most_share = 0;  // of the samples
};

struct Use {
  double seconds = 0, steps_s = 0;
  std::vector<ActorUse> actors;
  std::vector<TokenCounts> tokens;  // at the end
  std::vector<double> tokens_s;
  std::vector<int> by_use;  // actors, the busiest first
};

Use use_of(const LivePlan& plan, std::span<const LiveSample> samples) {
  const LiveSession &first = samples.front().session, &last = samples.back().session;
  const int64_t ns = samples.back().clock_ns - samples.front().clock_ns;
  Use use;
  use.seconds = static_cast<double>(ns) / 1e9;
  use.steps_s = rate(first.finished, last.finished, use.seconds);
  const size_t n = plan.plan().actors.size();
  std::vector<std::map<Doing, size_t>> did(n);
  for (const LiveSample& sample : samples) {
    const std::vector<Doing> doings = plan.doings(sample.session);
    for (size_t a = 0; a < n; ++a) ++did[a][doings[a]];
  }
  for (size_t a = 0; a < n; ++a) {
    ActorUse& one = use.actors.emplace_back();
    one.firings_s = rate(first.firings[a], last.firings[a], use.seconds);
    const auto most = std::ranges::max_element(did[a], {}, [](const auto& entry) { return entry.second; });
    one.most = most->first;
    one.most_share = static_cast<double>(most->second) / static_cast<double>(samples.size());
    // A kernel is counted when it is over: one that takes longer than this was seen in all samples.
    const bool all_along = std::ranges::all_of(samples, [a](const LiveSample& s) { return s.session.now[a] >= 0; });
    const double counted = rate(first.busy_ns[a], last.busy_ns[a], use.seconds) / 1e9;
    one.busy = all_along ? 1 : std::min(1.0, counted);
  }
  const std::vector<TokenCounts> before = plan.tokens(first);
  use.tokens = plan.tokens(last);
  for (size_t r = 0; r < use.tokens.size(); ++r)
    use.tokens_s.push_back(rate(before[r].written, use.tokens[r].written, use.seconds));
  use.by_use.resize(n);
  std::iota(use.by_use.begin(), use.by_use.end(), 0);
  std::ranges::stable_sort(use.by_use, std::greater(), [&](int a) { return use.actors[a].busy; });
  return use;
}

// Tells who waited for the busiest actor, which answers most questions.
std::string busiest_str(const LivePlan& plan, const Use& use) {
  const int busiest = use.by_use.empty() ? -1 : use.by_use.front();
  if (busiest < 0 || use.actors[busiest].busy <= 0) return "nothing ran";
  const ActorUse& one = use.actors[busiest];
  std::string s =
      fmt::format("busiest is '{}', in kernels for {:.1f} %", plan.plan().actors[busiest].name, 100 * one.busy);
  const char* comma = "; it was waited for by ";
  for (size_t a = 0, told = 0; a < use.actors.size() && told < 3; ++a) {
    if (use.actors[a].most.whom != busiest || use.actors[a].most_share < 0.05) continue;
    s += fmt::format("{}'{}' ({:.0f} %)", std::exchange(comma, ", "), plan.plan().actors[a].name,
                     100 * use.actors[a].most_share);
    ++told;
  }
  return s;
}

// A host function is known by the name that the program gave it.
std::string kernel_str(const Kernel& kernel) {
  std::string name = kernel.name;
  for (const auto& [attr, value] : kernel.attrs) {
    const auto* const text = std::get_if<std::string>(&value);
    if (kernel.op == "host_function" && attr == "name" && text != nullptr) name = *text;
  }
  return "'" + name + "'" + (kernel.source.known() ? " (" + kernel.source.str() + ")" : "");
}

std::string slots_str(const TokenCounts& c, int quota) {
  constexpr int kMostDrawn = 8;
  if (quota > kMostDrawn) return "";
  std::string s;
  for (int i = 0; i < quota; ++i) s += i < c.ready ? "■" : i < c.used ? "◧" : "□";
  return s;
}

}  // namespace

const char* doing_name(Doing::What what) {
  constexpr const char* kNames[] = {"runs", "device", "cores", "data", "slot", "step", "stream", "ready"};
  return kNames[static_cast<int>(what)];
}

LivePlan::LivePlan(Plan plan) : plan_(checked(std::move(plan))), adjacency_(plan_), counts_(plan_) {}

void LivePlan::check(const LiveSession& session) const {
  SLUICE_CHECK(session.firings.size() == plan_.actors.size(), "plan '{}': counters of {} actors; the plan has {}",
               plan_.name, session.firings.size(), plan_.actors.size());
  for (const int now : session.now)
    SLUICE_CHECK(now >= kLiveCores && now < static_cast<int>(plan_.kernels.size()),
                 "plan '{}': an actor runs kernel {}; the plan has {}", plan_.name, now, plan_.kernels.size());
}

std::vector<TokenCounts> LivePlan::tokens(const LiveSession& session) const {
  return token_counts(plan_, adjacency_, session.firings);
}

std::vector<Doing> LivePlan::doings(const LiveSession& session) const {
  const std::vector<TokenCounts> counts = tokens(session);
  std::vector<int> firing(plan_.streams.size(), -1);  // the actor that each stream fires
  for (size_t a = 0; a < session.now.size(); ++a) {
    if (session.now[a] != kLiveIdle) firing[plan_.actors[a].stream] = static_cast<int>(a);
  }
  std::vector<Doing> doings;
  for (size_t a = 0; a < session.now.size(); ++a) {
    const int actor = static_cast<int>(a), now = session.now[a];
    Doing& doing = doings.emplace_back();
    if (now >= 0) {
      doing = {Doing::What::kRuns, now, -1};
      continue;
    }
    if (now != kLiveIdle) {
      doing.what = now == kLiveDevice ? Doing::What::kDevice : Doing::What::kCores;
      continue;
    }
    const auto missing =
        missing_message(plan_, adjacency_, counts, session.firings, actor, counts_.after(actor, session.submitted));
    if (!missing) {
      const int other = firing[plan_.actors[a].stream];
      if (other >= 0) doing = {Doing::What::kStream, -1, other};
    } else if (missing->index < 0) {
      doing.what = Doing::What::kStep;
    } else if (missing->credit) {
      doing = {Doing::What::kSlot, missing->index, -1};
      uint64_t least = UINT64_MAX;  // of the consumers, the one that is furthest behind
      for (const int e : adjacency_.register_edges[missing->index]) {
        const Edge& edge = plan_.edges[e];
        const uint64_t released =
            session.firings[edge.consumer] / static_cast<uint64_t>(edge.hold) * static_cast<uint64_t>(edge.take);
        if (released < least) least = released, doing.whom = edge.consumer;
      }
    } else {
      doing = {Doing::What::kData, missing->index, plan_.registers[plan_.edges[missing->index].reg].producer};
    }
  }
  return doings;
}

std::string LivePlan::str(const Doing& doing) const {
  const auto actor = [&] { return "'" + plan_.actors[doing.whom].name + "'"; };
  switch (doing.what) {
    case Doing::What::kRuns: return "runs " + kernel_str(plan_.kernels[doing.index]);
    case Doing::What::kDevice: return "waits for a device";
    case Doing::What::kCores: return "waits for cores";
    case Doing::What::kData:
      return fmt::format("waits for {}: data '{}'", actor(), plan_.registers[plan_.edges[doing.index].reg].name);
    case Doing::What::kSlot:
      return fmt::format("waits for {}: a slot of '{}'", actor(), plan_.registers[doing.index].name);
    case Doing::What::kStep: return "waits for a step";
    case Doing::What::kStream: return fmt::format("waits for its stream, which fires {}", actor());
    case Doing::What::kReady: return "is about to fire";
  }
  return "";
}

std::string top_text(const LivePlan& live, std::span<const LiveSample> samples, const TextOptions& options) {
  const Plan& plan = live.plan();
  const LiveSession& last = samples.back().session;
  const Use use = use_of(live, samples);
  std::string s =
      paint(fmt::format("plan '{}'{}", plan.name, last.rank < 0 ? "" : fmt::format(", rank {}", last.rank)),
            Color::kBold, options) +
      fmt::format(": {:.1f} steps/s, {} of {} steps in flight, {} finished{}{}, {}\n", use.steps_s, last.in_flight,
                  last.max_in_flight, last.finished, last.failed > 0 ? fmt::format(", {} failed", last.failed) : "",
                  last.waiting > 0 ? fmt::format(", {} waiting for room", last.waiting) : "", short_bytes(last.bytes));
  s += "  " + busiest_str(live, use) + "\n";
  std::vector<std::vector<std::string>> rows = {{"actor", "stream", "firings/s", "busy", "most of the time it"}};
  for (const int a : use.by_use) {
    if (!options.all && rows.size() > kMostListed) break;
    const ActorUse& one = use.actors[a];
    rows.push_back({plan.actors[a].name, plan.streams[plan.actors[a].stream].name, fmt::format("{:.1f}", one.firings_s),
                    fmt::format("{:.1f}%", 100 * one.busy),
                    fmt::format("{} {:.0f}%", live.str(one.most), 100 * one.most_share)});
  }
  s += table(rows, {false, false, true, true, false}, options.width);
  if (use.by_use.size() >= rows.size()) s += fmt::format("  … {} more (--all)\n", use.by_use.size() + 1 - rows.size());
  rows = {{"register", "slots", "free", "full", "in flight", "tokens/s", ""}};
  std::vector<size_t> registers;
  for (size_t r = 0; r < plan.registers.size(); ++r) registers.push_back(r);
  std::ranges::stable_sort(registers, std::greater(), [&](size_t r) { return use.tokens[r].used; });
  for (const size_t r : registers) {
    if (!options.all && rows.size() > kMostListed) break;
    const TokenCounts& c = use.tokens[r];
    const int quota = plan.registers[r].quota, full = std::min(c.ready, c.used);
    rows.push_back({plan.registers[r].name, std::to_string(quota), std::to_string(quota - c.used), std::to_string(full),
                    std::to_string(c.used - full), fmt::format("{:.1f}", use.tokens_s[r]), slots_str(c, quota)});
  }
  s += table(rows, {false, true, true, true, true, true, false}, options.width);
  if (registers.size() >= rows.size()) s += fmt::format("  … {} more (--all)\n", registers.size() + 1 - rows.size());
  return s;
}

std::string top_json(const LivePlan& live, std::span<const LiveSample> samples) {
  const Plan& plan = live.plan();
  const LiveSession& last = samples.back().session;
  const Use use = use_of(live, samples);
  std::string s = fmt::format(
      "{{\"id\": {}, \"name\": {}, \"rank\": {}, \"seconds\": {:.6g}, \"steps_per_s\": {:.6g}, \"in_flight\": {}, "
      "\"max_in_flight\": {}, \"submitted\": {}, \"finished\": {}, \"failed\": {}, \"waiting\": {}, \"bytes\": {}, "
      "\"actors\": [",
      last.id, quoted_json(plan.name), last.rank, use.seconds, use.steps_s, last.in_flight, last.max_in_flight,
      last.submitted, last.finished, last.failed, last.waiting, last.bytes);
  for (size_t a = 0; a < use.actors.size(); ++a) {
    const ActorUse& one = use.actors[a];
    s += fmt::format(
        "{}{{\"name\": {}, \"stream\": {}, \"firings\": {}, \"firings_per_s\": {:.6g}, \"busy\": {:.6g}, \"does\": "
        "\"{}\", \"text\": {}, \"whom\": {}, \"share\": {:.6g}}}",
        a > 0 ? ", " : "", quoted_json(plan.actors[a].name), quoted_json(plan.streams[plan.actors[a].stream].name),
        last.firings[a], one.firings_s, one.busy, doing_name(one.most.what), quoted_json(live.str(one.most)),
        one.most.whom < 0 ? "null" : quoted_json(plan.actors[one.most.whom].name), one.most_share);
  }
  s += "], \"registers\": [";
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const TokenCounts& c = use.tokens[r];
    const int quota = plan.registers[r].quota, full = std::min(c.ready, c.used);
    s += fmt::format(
        "{}{{\"name\": {}, \"slots\": {}, \"free\": {}, \"full\": {}, \"in_flight\": {}, \"tokens_per_s\": {:.6g}}}",
        r > 0 ? ", " : "", quoted_json(plan.registers[r].name), quota, quota - c.used, full, c.used - full,
        use.tokens_s[r]);
  }
  return s + "]}";
}

std::string moment_json(const LivePlan& live, const LiveSample& sample) {
  const LiveSession& now = sample.session;
  std::string s = fmt::format(
      "{{\"clock\":{},\"submitted\":{},\"finished\":{},\"failed\":{},\"inFlight\":{},\"most\":{},\"waiting\":{},"
      "\"firings\":[{}],\"busy\":[{}]",
      sample.clock_ns, now.submitted, now.finished, now.failed, now.in_flight, now.max_in_flight, now.waiting,
      fmt::join(now.firings, ","), fmt::join(now.busy_ns, ","));
  std::vector<int64_t> does, index, whom, used, full;
  for (const Doing& doing : live.doings(now)) {
    does.push_back(static_cast<int64_t>(doing.what));
    index.push_back(doing.index);
    whom.push_back(doing.whom);
  }
  for (const TokenCounts& c : live.tokens(now)) {
    used.push_back(c.used);
    full.push_back(std::min(c.ready, c.used));
  }
  return s + fmt::format(",\"does\":[{}],\"index\":[{}],\"whom\":[{}],\"used\":[{}],\"full\":[{}]}}",
                         fmt::join(does, ","), fmt::join(index, ","), fmt::join(whom, ","), fmt::join(used, ","),
                         fmt::join(full, ","));
}

}  // namespace sluice::plan_viz
