// Collectives: every rank of a group meets the same calls in the same order, and waiting for one another cannot block.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "plan/ranks.h"
#include "plan/verify.h"
#include "plan/verify/meetings.h"

namespace sluice::plan {
namespace {

class Collectives {
 public:
  using Call = Meetings::Call;
  Collectives(const Plan& plan, VerifyReport& report) : plan_(plan), report_(report) {}

  void run() {
    if (std::none_of(plan_.kernels.begin(), plan_.kernels.end(), [](const Kernel& k) { return k.collective >= 0; }))
      return;
    same_counts();
    // More periods, until none that could overlap is left out.
    for (int periods = 2; report_.ok(); periods *= 2) {
      const Meetings meetings(plan_, report_.repetitions, periods);
      meetings_ = &meetings;
      if (!meetings.finished()) return report_stuck();
      in_order();
      if (report_.ok()) same_calls();
      if (report_.ok()) cycles();
      if (meetings.covers_all()) return;
      int64_t firings = 0;
      for (const int n : report_.repetitions) firings += int64_t{n} * periods;
      if (report_.ok() && firings > kMaxFirings) {
        problem(
            "{} firings in {} periods do not show that all ranks keep in step; join them by registers of fewer slots",
            firings, periods);
      }
    }
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back({"collectives", fmt::format(format, std::forward<Args>(args)...)});
  }
  const std::string& name(int actor) const { return plan_.actors[actor].name; }

  static std::string operands(const Kernel& k) {
    std::string s = k.op + "(";
    for (size_t i = 0; i < k.inputs.size(); ++i) {
      s += (i ? ", " : "") + std::string(dtype_name(k.inputs[i].spec.dtype)) + k.inputs[i].spec.shape.str();
    }
    return s + ")";
  }

  // Every rank of a group makes equally many calls a period.
  void same_counts() {
    std::map<int, std::map<int, int64_t>> counts;  // by group and rank
    for (size_t a = 0; a < plan_.actors.size(); ++a) {
      for (const Instr& i : plan_.actors[a].program) {
        if (i.kind != InstrKind::kRun || plan_.kernels[i.index].collective < 0) continue;
        counts[plan_.kernels[i.index].collective][rank_of(plan_, static_cast<int>(a))] += report_.repetitions[a];
      }
    }
    for (const auto& [group, ranks] : counts) {
      const auto& [first_rank, first] = *ranks.begin();
      for (const auto& [r, n] : ranks) {
        if (n == first) continue;
        problem("group {}: rank {} makes {} calls a period, rank {} makes {}; all ranks must make equally many", group,
                first_rank, first, r, n);
        return;
      }
    }
  }

  // No rank can enter a call of a group before it has left the one before it.
  void in_order() {
    for (const auto& [member, sequence] : meetings_->sequences()) {
      for (size_t i = 0; i + 1 < sequence.size(); ++i) {
        const Call &one = call(sequence[i]), &two = call(sequence[i + 1]);
        if (meetings_->contains(segment(two).causes, after(one))) continue;
        const std::string& first = plan_.kernels[one.kernel].name;
        problem("group {} on rank {}: nothing makes '{}' come before '{}'; order them by a control register",
                member.first, member.second, first, plan_.kernels[two.kernel].name);
        return;
      }
    }
  }

  void same_calls() {
    for (const std::vector<int>& meeting : meetings_->meetings()) {
      const Call& one = call(meeting[0]);
      const Kernel& x = plan_.kernels[one.kernel];
      for (const int other : meeting) {
        const Call& two = call(other);
        const Kernel& y = plan_.kernels[two.kernel];
        if (operands(x) == operands(y)) continue;
        problem("group {}: call {}: rank {} calls '{}', {}; rank {} calls '{}', {}; all ranks must meet the same call",
                one.group, one.number, one.rank, x.name, operands(x), two.rank, y.name, operands(y));
        return;
      }
    }
  }

  // Calls that wait for ever in some order of firings: each holds its stream, where something waits that a rank needs
  // before it can come to the meeting of the call before it. Conversely, where everything has stopped, take what has
  // no cause left to wait for: a stream is held from it, by a call whose meeting lacks the next such thing, and so on
  // round. Only a stream whose firings have no fixed order can be held from a cause of a meeting, so plans with ordered
  // streams cost nothing here.
  void cycles() {
    for (size_t c = 0; c < meetings_->calls().size(); ++c) {
      if (meetings_->stream_chains()[stream(static_cast<int>(c))].size() > 1) holders_.push_back(static_cast<int>(c));
    }
    needs_.clear();
    for (const std::vector<int>& meeting : meetings_->meetings()) {
      std::vector<int> needs;
      for (const int c : meeting) Meetings::join(needs, segment(call(c)).causes);
      needs_.push_back(std::move(needs));
    }
    for (const int c : holders_) {
      path_ = {c};
      if (extend(segment(call(c)).causes)) break;
    }
    holders_.clear();
  }

  // The first segment on the stream of `holder` that `waiting`'s meeting needs and that has not run when just `run`
  // has; -1 when there is none.
  int held_back(int waiting, int holder, const std::vector<int>& run) const {
    const std::vector<int>& needs = needs_[call(waiting).meeting];
    for (const int chain : meetings_->stream_chains()[stream(holder)]) {
      const int ran = chain < static_cast<int>(run.size()) ? run[chain] : 0;
      const int needed = chain < static_cast<int>(needs.size()) ? needs[chain] : 0;
      if (ran >= needed) continue;
      const int s = meetings_->chains()[chain][ran];
      // A call behind the holder's own meeting would not come to wait for it.
      if (!meetings_->contains(meetings_->segments()[s].causes, after(call(holder)))) return s;
    }
    return -1;
  }

  // `run`: what has run when just all of path_ have been entered. True when a problem was found.
  bool extend(const std::vector<int>& run) {
    if (++visits_ > kMaxVisits) {
      problem(
          "'{}' may hold its stream from what its meeting needs; order the firings of stream '{}' by control registers",
          plan_.kernels[call(path_[0]).kernel].name, plan_.streams[stream(path_[0])].name);
      return true;
    }
    for (size_t i = 0; i < path_.size(); ++i) {
      if (meetings_->contains(run, after(call(path_[i])))) return false;  // one of them must have left already
      if (i + 1 < path_.size() && held_back(path_[i], path_[i + 1], run) < 0) return false;
    }
    if (held_back(path_.back(), path_[0], run) >= 0) {
      report_path(run);
      return true;
    }
    for (const int c : holders_) {
      // Every cycle is found from its first call.
      if (c <= path_[0] || held_back(path_.back(), c, run) < 0) continue;
      if (std::any_of(path_.begin(), path_.end(), [&](int p) { return stream(p) == stream(c); })) continue;
      std::vector<int> more = run;
      Meetings::join(more, segment(call(c)).causes);
      path_.push_back(c);
      if (extend(more)) return true;
      path_.pop_back();
    }
    return false;
  }

  void report_path(const std::vector<int>& run) {
    std::string text;
    for (size_t i = 0; i < path_.size(); ++i) {
      const int holder = path_[(i + 1) % path_.size()];
      const Meetings::Segment& held = meetings_->segments()[held_back(path_[i], holder, run)];
      const int s = stream(holder);
      text += fmt::format(
          "{}'{}' is in collective '{}', for which another rank needs '{}'; '{}' waits for stream '{}', held by '{}'",
          text.empty() ? "" : "; ", name(segment(call(path_[i])).actor), plan_.kernels[call(path_[i]).kernel].name,
          name(held.actor), name(held.actor), plan_.streams[s].name, name(segment(call(holder)).actor));
    }
    problem("deadlock: {}; order the firings of the stream by a control register", text);
  }

  // Why one order of firings, run as it came, has stopped.
  void report_stuck() {
    const Network& network = meetings_->network();
    const std::vector<int>& left = meetings_->left();
    const int n = network.actors();
    std::vector<std::vector<int>> arcs(n);
    std::map<std::pair<int, int>, std::string> why;
    const auto wait = [&](int a, int b, std::string text) {
      arcs[a].push_back(b);
      why.emplace(std::pair(a, b), std::move(text));
    };
    for (int a = 0; a < n; ++a) {
      const Meetings::Running& run = meetings_->streams()[plan_.actors[a].stream];
      if (run.actor == a) {
        wait_for_ranks(a, meetings_->segments()[run.segment].call, wait);
        continue;
      }
      if (left[a] == 0) continue;
      if (network.rules[a].can_fire()) {
        if (run.actor >= 0)
          wait(a, run.actor,
               fmt::format("'{}' waits for stream '{}', held by '{}'", name(a),
                           plan_.streams[plan_.actors[a].stream].name, name(run.actor)));
        continue;
      }
      for (const Network::Blame& blame : network.blames(a)) {
        wait(a, blame.actor,
             fmt::format("'{}' waits for {} {} '{}'", name(a), blame.wait.str(plan_),
                         blame.wait.credit ? "held by" : "from", name(blame.actor)));
      }
    }
    const std::vector<int> cycle = shortest_cycle(arcs);
    std::string text;
    for (size_t i = 0; i < cycle.size(); ++i) text += (i ? "; " : "") + why[{cycle[i], cycle[(i + 1) % cycle.size()]}];
    problem("deadlock: {}; the calls must come in one order on all ranks", text);
  }

  // `a` is in a call: which actors have yet to come to it.
  template <class Wait>
  void wait_for_ranks(int a, int at, const Wait& wait) {
    const Call& here = call(at);
    for (const auto& [member, sequence] : meetings_->sequences()) {
      if (member.first != here.group || member.second == here.rank) continue;
      if (here.number < static_cast<int>(sequence.size())) continue;  // it is there
      report_missing(a, here, member.second, wait);
    }
    // A rank that has made no call at all has no sequence yet.
    std::set<int> ranks;
    for (const auto& [member, sequence] : meetings_->sequences()) {
      if (member.first == here.group) ranks.insert(member.second);
    }
    for (int b = 0; b < static_cast<int>(plan_.actors.size()); ++b) {
      if (calls_group(b, here.group) && ranks.insert(rank_of(plan_, b)).second)
        report_missing(a, here, rank_of(plan_, b), wait);
    }
  }

  bool calls_group(int actor, int group) const {
    return std::any_of(plan_.actors[actor].program.begin(), plan_.actors[actor].program.end(), [&](const Instr& i) {
      return i.kind == InstrKind::kRun && plan_.kernels[i.index].collective == group;
    });
  }

  // The next call of rank `r` in the group is that of an actor with firings left that has made fewest.
  template <class Wait>
  void report_missing(int a, const Call& here, int r, const Wait& wait) {
    int64_t least = std::numeric_limits<int64_t>::max();
    int missing = -1, kernel = -1;
    for (int b = 0; b < static_cast<int>(plan_.actors.size()); ++b) {
      if (rank_of(plan_, b) != r || !calls_group(b, here.group)) continue;
      const Meetings::Running& there = meetings_->streams()[plan_.actors[b].stream];
      const bool inside = there.actor == b;
      if (!inside && meetings_->left()[b] == 0) continue;
      // Within a firing, a later call of its program.
      const std::vector<Instr>& program = plan_.actors[b].program;
      int next = -1;
      for (size_t pc = inside ? there.pc + 1 : 0; pc < program.size() && next < 0; ++pc) {
        if (program[pc].kind == InstrKind::kRun && plan_.kernels[program[pc].index].collective == here.group)
          next = program[pc].index;
      }
      const int64_t fired = static_cast<int64_t>(meetings_->network().rules[b].firings());
      if (next < 0 || fired >= least) continue;
      least = fired;
      missing = b;
      kernel = next;
    }
    if (missing < 0) return;
    wait(a, missing,
         fmt::format("'{}' is in collective '{}' and waits for rank {}, where '{}' has yet to call '{}'", name(a),
                     plan_.kernels[here.kernel].name, r, name(missing), plan_.kernels[kernel].name));
  }

  const Call& call(int c) const { return meetings_->calls()[c]; }
  const Meetings::Segment& segment(const Call& c) const { return meetings_->segments()[c.segment]; }
  int after(const Call& c) const { return segment(c).next; }
  int stream(int c) const { return plan_.actors[segment(call(c)).actor].stream; }

  static constexpr int64_t kMaxFirings = 1'000'000;
  static constexpr int64_t kMaxVisits = 1'000'000;

  const Plan& plan_;
  VerifyReport& report_;
  const Meetings* meetings_ = nullptr;
  std::vector<int> holders_;             // calls on streams without a fixed order
  std::vector<std::vector<int>> needs_;  // per meeting: the causes of all its calls
  std::vector<int> path_;                // calls entered, each waiting for what the next holds back
  int64_t visits_ = 0;
};

}  // namespace

void verify_collectives(const Plan& plan, VerifyReport& report) { Collectives(plan, report).run(); }

}  // namespace sluice::plan
