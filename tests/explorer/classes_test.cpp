// Plans of classes of ranks: a section is accepted exactly when all ranks together are, and those are what the explorer
// walks.
#include "plan/classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "explorer/generator.h"
#include "explorer/judge.h"
#include "plan/ranks.h"

namespace sluice::explorer {
namespace {

using plan::Classes;
using plan::FiringRule;

// The ranks that position `p` meets along an axis: of four positions, those of its row or of its column; else all.
std::vector<int> line(const std::vector<int>& ranks, int p, int axis) {
  if (ranks.size() != 4) return ranks;
  return axis == 0 ? std::vector{ranks[static_cast<size_t>(p % 2)], ranks[static_cast<size_t>(p % 2 + 2)]}
                   : std::vector{ranks[static_cast<size_t>(p / 2 * 2)], ranks[static_cast<size_t>(p / 2 * 2 + 1)]};
}

// One or two classes of two to four ranks. Each has a source, calls on a stream of their own, in one order unless that
// is left out, work on another stream, and a sink; registers join actors at random, also of different classes.
std::vector<Plan> random_sections(uint64_t seed, bool ordered) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  PlanBuilder b("classes_" + std::to_string(seed));
  const int classes = 1 + pick(2), positions = 2 + pick(3);
  Classes table;
  const bool interleaved = pick(2) == 0;
  for (int c = 0; c < classes; ++c) {
    table.ranks.emplace_back();
    for (int p = 0; p < positions; ++p) table.ranks.back().push_back(interleaved ? p * classes + c : c * positions + p);
  }
  std::vector<int> nodes;
  const auto join = [&](int from, int to, int quota, int initial = 0) {
    b.reg("r" + std::to_string(b.plan.registers.size()), from, {to},
          {.quota = std::max(quota, initial), .initial_tokens = initial});
  };
  for (int c = 0; c < classes; ++c) {
    const std::string n = std::to_string(c);
    const int compute = b.stream(n + "/cpu:0"), wire = b.stream(n + "/cpu:0", plan::StreamKind::kCollective);
    const int source = b.source("source" + n, compute), sink = b.sink("sink" + n, compute);
    const size_t first = nodes.size();
    const int calls = 1 + pick(2), works = 1 + pick(2);
    for (int i = 0; i < calls; ++i) {
      nodes.push_back(b.actor("call" + std::to_string(i) + "_" + n, wire));
      b.plan.kernels[b.run(nodes.back(), "all_reduce")].collective = 2 * c + pick(2);
    }
    if (ordered && calls == 2) {
      join(nodes[first], nodes[first + 1], 1);
      join(nodes[first + 1], nodes[first], 1, 1);
    }
    for (int i = 0; i < works; ++i) nodes.push_back(b.actor("work" + std::to_string(i) + "_" + n, compute));
    for (size_t i = first; i < nodes.size(); ++i) {
      join(source, nodes[i], 1 + pick(2));
      join(nodes[i], sink, 1 + pick(2));
    }
  }
  for (int extra = pick(5); extra > 0; --extra) {
    const int from = nodes[static_cast<size_t>(pick(static_cast<int>(nodes.size())))],
              to = nodes[static_cast<size_t>(pick(static_cast<int>(nodes.size())))];
    if (from != to) join(from, to, 1 + pick(2), pick(3) == 0 ? 1 : 0);
  }
  const Plan made = b.build(false);
  std::vector<Plan> sections;
  for (int p = 0; p < positions; ++p) {
    table.position = p;
    table.groups.clear();
    for (const auto& [group, callers] : plan::ranks_of_groups(made))
      table.groups[group] = line(table.ranks[static_cast<size_t>(callers[0])], p, group % 2);
    sections.push_back(made);
    plan::set_classes(sections.back(), table);
  }
  return sections;
}

// Walks an accepted plan of all ranks in some orders of messages.
std::string walked(const Plan& plan, const std::vector<int>& repetitions, uint64_t seed) {
  std::vector<int> owed = repetitions;
  const int steps = 2 * period_steps(plan, owed);
  for (int& n : owed) n *= 2;
  World<FiringRule> world(plan, {.hosting = Hosting::kStreams, .steps = steps, .owed = owed});
  Tally tally;
  const Outcome o = walk(world, {.states = 200, .walks = 4}, tally, seed);
  return o.ok() ? "" : story(world, o);
}

TEST(ExplorerClasses, ASectionIsLiveExactlyWhenAllRanksAre) {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<Plan> sections = random_sections(seed, true);
    const Plan all = plan::unrolled(sections);
    const plan::VerifyReport whole = plan::verify(all);
    for (const Plan& section : sections) {
      const plan::VerifyReport one = plan::verify(section);
      ASSERT_EQ(one.ok(), whole.ok()) << "the section: " << one.str() << "all ranks: " << whole.str();
    }
    ++(whole.ok() ? accepted : refused);
    if (whole.ok() && seed % 16 == 0) {
      ASSERT_EQ(walked(all, whole.repetitions, seed), "");
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 60);
}

// Two calls that nothing orders: ranks of a class may meet in different ones, and all but one rank wait for ever.
TEST(ExplorerClasses, CallsWithoutAnOrderAreRefused) {
  int unordered = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<Plan> sections = random_sections(seed, false);
    const plan::VerifyReport one = plan::verify(sections[0]);
    unordered += !one.ok() && one.problems[0].text.find("firings have no fixed order") != std::string::npos;
    if (one.ok()) {
      EXPECT_EQ(plan::verify(plan::unrolled(sections)).str(), "") << seed;
    }
  }
  EXPECT_GT(unordered, 10);
}

Plan accepted_section() {
  for (uint64_t seed = 0;; ++seed)
    if (const Plan section = random_sections(seed, true)[0]; plan::verify(section).ok()) return section;
}

TEST(ExplorerClasses, TablesAreChecked) {
  const Plan accepted = accepted_section();
  const auto problem = [&](auto change) {
    Plan section = accepted;
    Classes classes = plan::classes_of(section).value();
    change(classes);
    plan::set_classes(section, classes);
    const plan::VerifyReport report = plan::verify(section);
    return report.ok() ? "" : report.problems[0].concern + ": " + report.problems[0].text;
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(problem([](Classes&) {}), "");
  EXPECT_THAT(problem([](Classes& c) { c.ranks[0][0] = c.ranks[0][1]; }), HasSubstr("must be in one class"));
  EXPECT_THAT(problem([](Classes& c) { c.position = 7; }), HasSubstr("classes: position 7 of"));
  EXPECT_THAT(problem([](Classes& c) { c.ranks.push_back({99}); }), HasSubstr("all must have equally many"));
  EXPECT_THAT(problem([](Classes& c) { c.groups.clear(); }), HasSubstr("of which nothing says who meets"));
  EXPECT_THAT(problem([](Classes& c) { c.groups.begin()->second.push_back(99); }),
              HasSubstr("must be different ones of"));
}

TEST(ExplorerClasses, TablesAreText) {
  for (const char* text : {"0", "0,1", "0-2", "0-504:8", "0-7,16-24:4,9", "3,1,2"}) {
    Plan plan;
    plan.options = {{"classes", std::string(text)}};
    EXPECT_EQ(plan::ranks_str(plan::classes_of(plan).value().ranks.at(0)), text);
  }
  for (const char* text : {"x", "0-", "1-y", "0-4:z", "99999999", "-1"}) {
    Plan plan = accepted_section();
    plan::drop_classes(plan);
    plan.options.emplace_back("classes", std::string(text));
    const plan::VerifyReport report = plan::verify(plan);
    EXPECT_THAT(report.str(), ::testing::HasSubstr("is no rank; must be a number below")) << text;
  }
}

}  // namespace
}  // namespace sluice::explorer
