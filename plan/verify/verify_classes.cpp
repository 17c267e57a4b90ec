// Classes: what is proved of one rank of each holds of all ranks of the job.
#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "plan/classes.h"
#include "plan/ranks.h"
#include "plan/verify.h"
#include "plan/verify/meetings.h"

namespace sluice::plan {
namespace {

constexpr int64_t kMaxFirings = 1'000'000;

class Checks {
 public:
  Checks(const Plan& plan, const Classes& classes, VerifyReport& report)
      : plan_(plan), classes_(classes), report_(report) {}

  void run() {
    table();
    if (report_.ok()) groups();
    if (report_.ok()) orders();
  }

 private:
  void table() {
    const int positions = classes_.positions();
    std::vector<bool> there(static_cast<size_t>(classes_.job_ranks()), false);
    for (size_t c = 0; c < classes_.ranks.size(); ++c) {
      if (static_cast<int>(classes_.ranks[c].size()) != positions)
        return problem("class {} has {} ranks, class 0 has {}; all must have equally many", c, classes_.ranks[c].size(),
                       positions);
      for (const int rank : classes_.ranks[c]) {
        if (rank < 0 || rank >= classes_.job_ranks() || there[static_cast<size_t>(rank)])
          return problem("class {}: rank {}; each of the {} ranks must be in one class", c, rank, there.size());
        there[static_cast<size_t>(rank)] = true;
      }
    }
    if (classes_.position < 0 || classes_.position >= positions)
      problem("position {} of {}; must be one of a class", classes_.position, positions);
    if (rank_count(plan_) != static_cast<int>(classes_.ranks.size()))
      problem("{} classes for a plan of {}; must be equally many", classes_.ranks.size(), rank_count(plan_));
  }

  // One class calls a group's collectives, and its rank of this section is among those that meet.
  void groups() {
    for (const auto& [group, callers] : ranks_of_groups(plan_)) {
      const auto known = classes_.groups.find(group);
      if (known == classes_.groups.end() || callers.size() != 1)
        return problem("group {}: {} classes call it{}; one must, with ranks that are known", group, callers.size(),
                       known == classes_.groups.end() ? ", of which nothing says who meets" : "");
      const std::vector<int>& all = classes_.ranks[static_cast<size_t>(callers[0])];
      const std::set<int> distinct(known->second.begin(), known->second.end());
      const bool own = std::all_of(distinct.begin(), distinct.end(),
                                   [&](int rank) { return std::find(all.begin(), all.end(), rank) != all.end(); });
      if (!own || distinct.size() != known->second.size() || !distinct.contains(classes_.rank_at(callers[0])))
        return problem("group {}: ranks {}; must be different ones of class {}, rank {} among them", group,
                       fmt::join(known->second, ", "), callers[0], classes_.rank_at(callers[0]));
    }
  }

  // Every rank makes its calls in the order in which this one does: nothing else may hold a stream that a call needs.
  void orders() {
    if (classes_.groups.empty()) return;
    const int64_t period = std::accumulate(report_.repetitions.begin(), report_.repetitions.end(), int64_t{0});
    for (int periods = 2;; periods *= 2) {
      const Meetings meetings(plan_, report_.repetitions, periods);
      for (size_t s = 0; s < plan_.streams.size(); ++s) {
        if (meetings.stream_chains()[s].size() > 1)
          return problem(
              "stream '{}': firings have no fixed order, so ranks of a class might meet in different ones; order them "
              "by control registers",
              plan_.streams[s].name);
      }
      if (meetings.covers_all()) return;
      if (period * periods > kMaxFirings)
        return problem("{} firings do not show that calls have one order; join them by registers of fewer slots",
                       period * periods);
    }
  }

  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back({"classes", fmt::format(format, std::forward<Args>(args)...)});
  }

  const Plan& plan_;
  const Classes& classes_;
  VerifyReport& report_;
};

}  // namespace

void verify_classes(const Plan& plan, VerifyReport& report) {
  try {
    if (const std::optional<Classes> classes = classes_of(plan)) Checks(plan, *classes, report).run();
  } catch (const Error& error) {
    const std::string_view what = error.what();
    report.problems.push_back({"classes", std::string(what.substr(what.starts_with("classes: ") ? 9 : 0))});
  }
}

}  // namespace sluice::plan
