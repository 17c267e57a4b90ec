#include "plan/record/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace sluice::plan {
namespace {

constexpr int kMostDeep = 64;  // of whom one waits for who waits

bool is_wait(Spent spent) { return spent == Spent::kInput || spent == Spent::kCredit || spent == Spent::kStream; }

// The name that a kernel counts under.
std::string key_of(const Plan& plan, int kernel, BlameBy by) {
  const Kernel& k = plan.kernels[kernel];
  if (by == BlameBy::kRole) return role_name(k.role);
  if (by == BlameBy::kModule) return k.module.empty() ? "(no module)" : k.module;
  return k.source.known() ? k.source.str() : "(no line)";
}

// The kernel of the actor that ran longest; where none ran, its first, or -1.
int main_kernel(const Plan& plan, int actor, const std::vector<Segment>& segments) {
  std::map<int, int64_t> ran;
  for (const Instr& i : plan.actors[actor].program)
    if (i.kind == InstrKind::kRun) ran[i.index] = 0;
  for (const Segment& s : segments)
    if (s.spent == Spent::kRun || s.spent == Spent::kRanks) ran[s.who] += s.end_ns - s.begin_ns;
  const auto most = std::ranges::max_element(ran, {}, [](const auto& entry) { return entry.second; });
  return most == ran.end() ? -1 : most->first;
}

class Roots {
 public:
  Roots(const Plan& plan, const Timeline& timeline) : plan_(plan), timeline_(timeline), adjacency_(plan) {}

  std::vector<BlameRoot> of(int actor) {
    for (const Segment& s : timeline_.actors[actor])
      if (s.spent == Spent::kInput || s.spent == Spent::kCredit) follow(s, s.begin_ns, s.end_ns, kMostDeep);
    std::vector<BlameRoot> roots;
    for (const auto& [who, ns] : found_) roots.push_back({who.first, who.second, ns});
    std::ranges::stable_sort(roots, std::ranges::greater{}, &BlameRoot::ns);
    return roots;
  }

 private:
  // The one who was waited for in that part of a wait: a step of the program, the producer, or the last consumer.
  void follow(const Segment& wait, int64_t begin_ns, int64_t end_ns, int deep) {
    int whom = -1;
    if (wait.spent == Spent::kInput && wait.who >= 0) whom = plan_.registers[plan_.edges[wait.who].reg].producer;
    if (wait.spent == Spent::kCredit) whom = consumer_of(wait.who, end_ns);
    if (wait.spent == Spent::kStream) whom = wait.who;
    if (whom < 0 || deep == 0) {
      found_[{whom, Spent::kInput}] += end_ns - begin_ns;
      return;
    }
    const std::vector<Segment>& did = timeline_.actors[whom];
    auto it = std::ranges::upper_bound(did, begin_ns, {}, &Segment::end_ns);
    for (; it != did.end() && it->begin_ns < end_ns; ++it) {
      const int64_t from = std::max(begin_ns, it->begin_ns), to = std::min(end_ns, it->end_ns);
      if (is_wait(it->spent)) {
        follow(*it, from, to, deep - 1);
      } else {
        found_[{whom, it->spent}] += to - from;
      }
    }
  }

  // The consumer of the register whose firing ended last before the slot was there.
  int consumer_of(int reg, int64_t at_ns) const {
    int last = -1;
    int64_t last_ns = -1;
    for (const int e : adjacency_.register_edges[reg]) {
      const int consumer = plan_.edges[e].consumer;
      const std::vector<Fired>& firings = timeline_.firings[consumer];
      auto it = std::ranges::upper_bound(firings, at_ns, {}, &Fired::begin_ns);
      const int64_t ns = it == firings.begin() ? 0 : (--it)->end_ns;
      if (ns > last_ns) last = consumer, last_ns = ns;
    }
    return last;
  }

  const Plan& plan_;
  const Timeline& timeline_;
  const Adjacency adjacency_;
  std::map<std::pair<int, Spent>, int64_t> found_;
};

}  // namespace

std::vector<BlameRow> blame_of(const Plan& plan, const Timeline& timeline, BlameBy by) {
  std::vector<BlameRow> rows;
  std::map<std::string, size_t> known;
  std::vector<std::map<std::pair<Spent, int>, int64_t>> waits;
  const auto row_of = [&](const std::string& name, bool fresh) {
    const auto [it, made] = fresh ? std::pair{known.end(), true} : known.try_emplace(name, rows.size());
    if (!made) return it->second;
    rows.emplace_back().name = name;
    waits.emplace_back();
    return rows.size() - 1;
  };
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    const bool plain = by == BlameBy::kActor || by == BlameBy::kStream;
    const int main = plain ? -1 : main_kernel(plan, a, timeline.actors[a]);
    const std::string own = by == BlameBy::kActor    ? plan.actors[a].name
                            : by == BlameBy::kStream ? plan.streams[plan.actors[a].stream].name
                            : main < 0               ? "(no kernels)"
                                                     : key_of(plan, main, by);
    const size_t mine = row_of(own, by == BlameBy::kActor);
    for (const Segment& s : timeline.actors[a]) {
      const bool of_kernel = s.spent == Spent::kRun || s.spent == Spent::kRanks;
      const size_t at = plain || !of_kernel ? mine : row_of(key_of(plan, s.who, by), false);
      const int64_t ns = s.end_ns - s.begin_ns;
      rows[at].total_ns += ns;
      rows[at].ns[static_cast<int>(s.spent)] += ns;
      if (is_wait(s.spent)) waits[at][{s.spent, s.who}] += ns;
    }
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    for (const auto& [who, ns] : waits[r]) rows[r].waits.push_back({who.first, who.second, ns});
    std::ranges::stable_sort(rows[r].waits, std::ranges::greater{}, &BlameWait::ns);
  }
  if (by != BlameBy::kActor)
    std::ranges::stable_sort(rows, std::ranges::greater{}, [](const BlameRow& row) { return row.ns[0]; });
  return rows;
}

std::vector<BlameRoot> roots_of(const Plan& plan, const Timeline& timeline, int actor) {
  return Roots(plan, timeline).of(actor);
}

int last_actor(const Plan& plan, const std::vector<BlameRow>& by_actor) {
  int last = -1;
  for (const Edge& edge : plan.edges) {
    if (plan.actors[edge.consumer].role != ActorRole::kSink) continue;
    const int producer = plan.registers[edge.reg].producer;
    const auto ran = [&](int actor) { return by_actor[actor].ns[static_cast<int>(Spent::kRun)]; };
    if (ran(producer) > 0 && (last < 0 || ran(producer) > ran(last))) last = producer;
  }
  return last;
}

namespace {

double percent(int64_t ns, int64_t of) { return of > 0 ? 100 * static_cast<double>(ns) / static_cast<double>(of) : 0; }

// "run 38.0 %, input 60.1 %": what it did for at least a thousandth of the time.
std::string shares_str(const BlameRow& row) {
  std::string text;
  for (int s = 0; s < kSpent; ++s) {
    const double share = percent(row.ns[s], row.total_ns);
    if (share >= 0.1)
      text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", spent_name(static_cast<Spent>(s)), share);
  }
  return text;
}

}  // namespace

std::string headline_str(const Plan& plan, const Timeline& timeline, const std::vector<BlameRow>& by_actor) {
  const int64_t all = timeline.end_ns - timeline.begin_ns;
  std::string text = fmt::format("{:.4g} ms recorded", static_cast<double>(all) / 1e6);
  const int last = last_actor(plan, by_actor);
  if (last < 0) return text + "; no kernel ran next to a sink";
  const auto share = [&](Spent spent) { return percent(by_actor[last].ns[static_cast<int>(spent)], all); };
  text += fmt::format("; '{}' ran {:.1f} % of it and waited {:.1f} % for input and slots", plan.actors[last].name,
                      share(Spent::kRun), share(Spent::kInput) + share(Spent::kCredit));
  const char* before = ": ";
  for (const BlameRoot& root : roots_of(plan, timeline, last)) {
    if (percent(root.ns, all) < 0.1) break;
    text += fmt::format("{}{} {:.1f} %", std::exchange(before, ", "), root_str(plan, root), percent(root.ns, all));
  }
  return text;
}

std::string summary_str(const Recording& recording) {
  constexpr size_t kMost = 12;
  const Timeline timeline = timeline_of(recording);
  std::vector<BlameRow> rows = blame_of(recording.plan, timeline, BlameBy::kActor);
  std::string text = headline_str(recording.plan, timeline, rows) + "\n";
  std::ranges::stable_sort(rows, std::ranges::greater{}, [](const BlameRow& row) { return row.ns[0]; });
  for (size_t r = 0; r < rows.size() && r < kMost; ++r)
    text += fmt::format("  {}: {}\n", rows[r].name, shares_str(rows[r]));
  if (rows.size() > kMost) text += fmt::format("  and {} more\n", rows.size() - kMost);
  if (recording.trace.lost > 0)
    text += fmt::format("  {} events are missing: they came too fast\n", recording.trace.lost);
  return text;
}

std::string wait_str(const Plan& plan, const BlameWait& wait) {
  if (wait.spent == Spent::kStream) return fmt::format("stream, in '{}'", plan.actors[wait.who].name);
  if (wait.who < 0) return "a step of the program";
  if (wait.spent == Spent::kCredit) return fmt::format("a slot of '{}'", plan.registers[wait.who].name);
  const Register& reg = plan.registers[plan.edges[wait.who].reg];
  return fmt::format("'{}' of '{}'", reg.name, plan.actors[reg.producer].name);
}

std::string root_str(const Plan& plan, const BlameRoot& root) {
  if (root.actor < 0) return "no step was submitted";
  const std::string& name = plan.actors[root.actor].name;
  switch (root.spent) {
    case Spent::kRun: return fmt::format("'{}' ran", name);
    case Spent::kRanks: return fmt::format("'{}' was in a collective", name);
    case Spent::kCores: return fmt::format("'{}' waited for cores", name);
    case Spent::kDevice: return fmt::format("'{}' waited for a device", name);
    case Spent::kLost: return fmt::format("of '{}' events are missing", name);
    default: return fmt::format("'{}' was woken, or sent messages", name);
  }
}

}  // namespace sluice::plan
