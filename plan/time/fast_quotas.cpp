#include "plan/time/fast_quotas.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "base/shape.h"
#include "plan/pack/ledger.h"
#include "plan/time/cores.h"
#include "plan/verify.h"
#include "plan/verify/quota.h"

namespace sluice::plan {
namespace {

// slot_gains() tells of so many slots at most, because each costs a simulation.
constexpr size_t kMostGains = 16;

// A curve has about so many points.
constexpr uint64_t kMostPoints = 24;

// Shorter by less than this is not faster: the simulator's first come, first served may shift a little by chance.
constexpr double kFaster = 0.998;

class Solver {
 public:
  Solver(const Plan& plan, const QuotaOptions& options)
      : plan_(plan), options_(options), groups_(slot_groups(plan)), repetitions_(repetition_vector(plan)) {
    // Slots fill slowly where who fills them is only a little faster than who empties them, so small plans, for which
    // it costs little, run for long.
    int64_t work = 1;  // of a period
    busy_.resize(plan.streams.size());
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      work += repetitions_[a] * (1 + static_cast<int64_t>(plan.actors[a].program.size()));
      for (const Instr& instr : plan.actors[a].program) {
        if (instr.kind == InstrKind::kRun)
          busy_[plan.actors[a].stream] += plan.kernels[instr.index].cost_ns * repetitions_[a];
      }
    }
    simulated_.cores = options.cores;
    if (options.cores > 0) add_cores(plan);
    const int64_t periods = std::clamp<int64_t>(options.most_work / 20 / work, 8, 128);
    simulated_.steps = static_cast<int>(periods) * steps_of_period(plan, repetitions_);
    pinned_.resize(plan.registers.size());
    for (size_t r = 0; r < groups_.size(); ++r) pinned_[groups_[r]] = pinned_[groups_[r]] || options.fixed[r];
  }

  // With slots of at most `spare` bytes beyond those of the least quotas.
  QuotaChoice solve(uint64_t spare) {
    QuotaChoice choice;
    work_ = 0;
    fastest_ = std::numeric_limits<double>::infinity();
    best_ = {};
    best_.quotas = least_ = minimal_quotas(plan_, options_.fixed);
    choice.least_bytes = slot_bytes(plan_, groups_, best_.quotas);
    budget_ = spare > UINT64_MAX - choice.least_bytes ? UINT64_MAX : choice.least_bytes + spare;
    if (std::count_if(busy_.begin(), busy_.end(), [](double ns) { return ns > 0; }) > 1) {
      measure(best_);
    } else {  // what takes time is on one stream, which then never waits
      best_.bytes = choice.least_bytes;
      best_.period_ns = bound();
    }
    choice.least_period_ns = best_.period_ns;
    if (best_.period_ns * kFaster > bound()) {
      grow();
      exchange();  // what the critical cycle does not show, where two causes come at once
      widen();
      for (bool better = true; better;) {
        shrink();
        better = exchange();
      }
    }
    choice.quotas = best_.quotas;
    choice.bytes = best_.bytes;
    choice.period_ns = best_.period_ns;
    choice.critical = best_.critical;
    return choice;
  }

 private:
  // What the kernels of each rank's host hold, as if all of its cores were one stream that is busy with it.
  void add_cores(const Plan& plan) {
    std::map<int, double> held;
    const std::vector<int> cores = cores_of_kernels(plan);
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      double& sum = held[plan.streams[plan.actors[a].stream].device.rank];
      for (const Instr& instr : plan.actors[a].program) {
        if (instr.kind != InstrKind::kRun || cores[instr.index] <= 0) continue;
        sum += std::min(cores[instr.index], simulated_.cores) * plan.kernels[instr.index].cost_ns * repetitions_[a];
      }
    }
    for (const auto& [rank, ns] : held) cores_ns_ = std::max(cores_ns_, ns / simulated_.cores);
  }

  struct Tried {
    std::vector<int> quotas;
    uint64_t bytes = 0;
    double period_ns = 0;
    std::vector<CriticalHop> critical;
  };

  // False where there is no work left to find out.
  bool measure(Tried& tried) {
    tried.bytes = slot_bytes(plan_, groups_, tried.quotas);
    if (const auto known = known_.find(tried.quotas); known != known_.end()) {
      tried = known->second;
      return true;
    }
    if (work_ > options_.most_work) return false;
    for (size_t r = 0; r < plan_.registers.size(); ++r) plan_.registers[r].quota = tried.quotas[r];
    const Simulation simulation = simulate(plan_, simulated_);
    work_ += static_cast<int64_t>(simulation.firings.size() + simulation.kernels.size());
    tried.period_ns = simulation.deadlocked ? 0 : simulation.period_ns;
    tried.critical = simulation.critical;
    known_.emplace(tried.quotas, tried);
    return true;
  }

  // The period is no shorter than what the busiest stream, or all cores together, have to do in it.
  double bound() const {
    const double busiest = std::max(cores_ns_, *std::max_element(busy_.begin(), busy_.end()));
    return busiest / steps_of_period(plan_, repetitions_);
  }

  Tried with(const Tried& from, const std::vector<int>& groups, int more) const {
    std::vector<int> added(groups_.size());
    for (const int group : groups) added[group] = more;
    Tried tried;
    tried.quotas = from.quotas;
    for (size_t r = 0; r < groups_.size(); ++r) tried.quotas[r] += added[groups_[r]];
    return tried;
  }
  bool allowed(const Tried& tried) const {
    constexpr int kMostSlots = 64;
    for (size_t r = 0; r < tried.quotas.size(); ++r)
      if (!pinned_[groups_[r]] && tried.quotas[r] > std::max(least_[r], kMostSlots)) return false;
    return slot_bytes(plan_, groups_, tried.quotas) <= budget_;
  }
  // Groups that the critical cycle waits for a slot of, and that may have more.
  std::vector<int> wanted(const Tried& of) const {
    std::vector<int> groups;
    std::vector<bool> seen = pinned_;
    for (const CriticalHop& hop : of.critical) {
      if (hop.reason != CriticalHop::Reason::kCredit || seen[groups_[hop.reg]]) continue;
      seen[groups_[hop.reg]] = true;
      groups.push_back(groups_[hop.reg]);
    }
    return groups;
  }
  bool faster(const Tried& a, const Tried& b) const { return a.period_ns > 0 && a.period_ns < b.period_ns * kFaster; }

  // One more slot at a time where the critical cycle waits for one. Sometimes only two together help, so it goes on for
  // a while without gain; and where the cycle waits for many, all of them get one at once.
  void grow() {
    constexpr int kPatience = 6;
    constexpr size_t kMany = 8;
    const double least = bound();
    Tried now = best_;
    for (int without = 0; without < kPatience && best_.period_ns * kFaster > least;) {
      Tried next;
      const std::vector<int> groups = wanted(now);
      std::vector<Tried> tries;
      for (const int group : groups) {
        if (tries.size() < kMany) tries.push_back(with(now, {group}, 1));
      }
      if (groups.size() > kMany) tries.insert(tries.begin(), with(now, groups, 1));
      for (Tried& tried : tries) {
        if (!allowed(tried)) continue;
        if (!measure(tried)) return;
        const bool better =
            next.quotas.empty() || faster(tried, next) || (!faster(next, tried) && tried.bytes < next.bytes);
        if (better) next = std::move(tried);
      }
      if (next.quotas.empty()) return;
      now = std::move(next);
      if (faster(now, best_)) {
        best_ = now;
        without = 0;
      } else {
        ++without;
      }
    }
  }

  // More of all at once: what no way leads to that gains at each step.
  void widen() {
    std::vector<int> groups;
    for (int r = 0; r < static_cast<int>(groups_.size()); ++r) {
      if (groups_[r] == r && !pinned_[r]) groups.push_back(r);
    }
    Tried least;
    least.quotas = least_;
    for (int more = 1; more <= 7 && best_.period_ns * kFaster > bound(); ++more) {
      Tried tried = with(least, groups, more);
      if (!allowed(tried)) return;
      if (!measure(tried)) return;
      if (faster(tried, best_)) best_ = std::move(tried);
    }
  }

  // Takes slots away that do not make it slower, the largest first.
  void shrink() {
    fastest_ = std::min(fastest_, best_.period_ns);
    std::vector<int> groups;
    for (int r = 0; r < static_cast<int>(groups_.size()); ++r) {
      if (groups_[r] == r && !pinned_[r]) groups.push_back(r);
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [&](int a, int b) { return plan_.registers[a].bytes > plan_.registers[b].bytes; });
    for (const int group : groups) {
      while (best_.quotas[group] > least_[group]) {
        Tried tried = with(best_, {group}, -1);
        if (!measure(tried) || tried.period_ns <= 0 || tried.period_ns * kFaster > fastest_) break;
        best_ = std::move(tried);
      }
    }
  }

  // One slot more of any one or two, or moved from one to another: true when something is better.
  bool exchange() {
    std::vector<int> groups;
    for (int r = 0; r < static_cast<int>(groups_.size()); ++r) {
      if (groups_[r] == r && !pinned_[r]) groups.push_back(r);
    }
    constexpr size_t kMost = 12;  // of more, what grow() has found must do
    if (groups.size() > kMost || best_.period_ns * kFaster <= bound()) return false;
    const Tried before = best_;
    for (const int more : groups) {
      const Tried grown = with(before, {more}, 1);
      for (const int other : groups) {
        for (const int change : {-1, 1}) {
          Tried tried = other == more && change < 0 ? grown : with(grown, {other}, change);
          if (tried.quotas[other] < least_[other] || !allowed(tried)) continue;
          if (!measure(tried)) return false;
          if (faster(tried, best_)) best_ = std::move(tried);
        }
      }
    }
    return faster(best_, before);
  }

  Plan plan_;
  const QuotaOptions& options_;
  const std::vector<int> groups_;
  const std::vector<int> repetitions_;
  std::vector<double> busy_;  // per stream, in a period
  double cores_ns_ = 0;       // in a period, with all cores of a host at work
  std::vector<bool> pinned_;  // per group
  std::vector<int> least_;
  double fastest_ = std::numeric_limits<double>::infinity();
  SimulateOptions simulated_;
  std::map<std::vector<int>, Tried> known_;
  uint64_t budget_ = 0;
  int64_t work_ = 0;
  Tried best_;
};

}  // namespace

std::vector<int> slot_groups(const Plan& plan) {
  std::vector<int> group(plan.registers.size());
  std::iota(group.begin(), group.end(), 0);
  const auto root = [&](int r) {
    while (group[r] != r) r = group[r] = group[group[r]];
    return r;
  };
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const int edge = plan.registers[r].in_place_of;
    if (edge >= 0) group[root(static_cast<int>(r))] = root(plan.edges[edge].reg);
  }
  for (size_t r = 0; r < plan.registers.size(); ++r) group[r] = root(static_cast<int>(r));
  return group;
}

uint64_t slot_bytes(const Plan& plan, const std::vector<int>& groups, const std::vector<int>& quotas) {
  uint64_t bytes = 0;
  for (size_t r = 0; r < groups.size(); ++r) {
    if (groups[r] == static_cast<int>(r))
      bytes = checked_add(bytes,
                          checked_mul(align_up(plan.registers[r].bytes, kAlignment), static_cast<uint64_t>(quotas[r])));
  }
  return bytes;
}

QuotaChoice fast_quotas(const Plan& plan, const QuotaOptions& options) {
  return Solver(plan, options).solve(options.spare);
}

std::vector<QuotaChoice> quota_curve(const Plan& plan, const QuotaOptions& options) {
  Solver solver(plan, options);  // which remembers what it has simulated
  std::vector<QuotaChoice> curve;
  uint64_t least_step = 0;
  for (uint64_t spare = options.spare;;) {
    QuotaChoice choice = solver.solve(spare);
    const uint64_t extra = choice.bytes - choice.least_bytes;
    if (curve.empty()) least_step = extra / kMostPoints;
    // A smaller budget leads another way, which may be better as well.
    while (!curve.empty() && choice.period_ns * kFaster <= curve.back().period_ns) curve.pop_back();
    curve.push_back(std::move(choice));
    if (extra == 0) break;
    spare = extra - std::clamp<uint64_t>(least_step, 1, extra);
  }
  std::reverse(curve.begin(), curve.end());
  return curve;
}

std::string QuotaChoice::str(const Plan& plan) const {
  if (period_ns <= 0) return fmt::format("{}: nothing says how long anything takes", bytes_str(bytes));
  const std::string limit = critical.empty() ? "" : "; limited by " + critical_str(plan, critical);
  if (bytes <= least_bytes)
    return fmt::format("{}, the least: {:.4g} us a step{}", bytes_str(bytes), period_ns / 1e3, limit);
  return fmt::format("{}, {} more than the least: {:.4g} us a step instead of {:.4g}{}", bytes_str(bytes),
                     bytes_str(bytes - least_bytes), period_ns / 1e3, least_period_ns / 1e3, limit);
}

std::vector<SlotGain> slot_gains(const Plan& plan, const Simulation& simulation, const SimulateOptions& options) {
  const std::vector<int> groups = slot_groups(plan);
  std::vector<SlotGain> gains;
  for (const CriticalHop& hop : simulation.critical) {
    if (hop.reason != CriticalHop::Reason::kCredit || gains.size() == kMostGains) continue;
    const int group = groups[hop.reg];
    if (std::any_of(gains.begin(), gains.end(), [&](const SlotGain& g) { return groups[g.reg] == group; })) continue;
    Plan more = plan;
    for (size_t r = 0; r < groups.size(); ++r) more.registers[r].quota += groups[r] == group;
    gains.push_back({hop.reg, align_up(plan.registers[group].bytes, kAlignment), simulate(more, options).period_ns});
  }
  return gains;
}

}  // namespace sluice::plan
