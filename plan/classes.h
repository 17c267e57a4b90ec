#pragma once
// Ranks that run one program, and plans that have each such program once (ADR 80).
//
// Ranks of a job are of one class when they do the same, each with its own parts of tensors. What a plan of classes
// calls rank c stands for all ranks of class c. Position p of every class together is a section: registers go from
// class to class within a section, and only collectives join ranks of one class. The plan is that of one section, whose
// coordinates its kernels have (the offsets at which they cut); other sections differ in nothing else. A plan of
// classes says so in its options, as text.
#include <map>
#include <optional>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

struct VerifyReport;

struct Classes {
  int position = 0;                             // of the section that the plan is of
  std::vector<std::vector<int>> ranks = {};     // per class: its ranks, by position; all have equally many
  std::map<int, std::vector<int>> groups = {};  // per group of the plan: the ranks of the job that meet in it
  int positions() const { return ranks.empty() ? 0 : static_cast<int>(ranks[0].size()); }
  int job_ranks() const { return positions() * static_cast<int>(ranks.size()); }
  // The rank of the job that class `number` has in this section.
  int rank_at(int number) const { return ranks.at(static_cast<size_t>(number)).at(static_cast<size_t>(position)); }
  // The class of a rank of this section; -1 for any other.
  int class_of(int rank) const;
  bool operator==(const Classes&) const = default;
};

// None of a plan of all ranks. Throws kValue for text that is no table.
std::optional<Classes> classes_of(const Plan& plan);
void set_classes(Plan& plan, const Classes& classes);
// The plan is then one of ranks.
void drop_classes(Plan& plan);
// The ranks that run the plan: those of the job, also where it is of classes.
int job_ranks(const Plan& plan);
// "0-7,16-24:4" are 0 to 7, 16, 20 and 24.
std::string ranks_str(const std::vector<int>& ranks);

// Can all ranks of the job run a plan of classes forever? That is so when the plan of the section can, its table is
// one, and each stream on which collectives run has one order of firings (ADR 80 has the proof). A concern of verify(),
// after all others.
void verify_classes(const Plan& plan, VerifyReport& report);

// All ranks of the job in one plan, from the plans of all sections by position: what they mean together, and far too
// large where there are many. Names get the position. Throws kValue for sections of other jobs.
Plan unrolled(const std::vector<Plan>& sections);

}  // namespace sluice::plan
