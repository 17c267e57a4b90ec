// Plans of classes of ranks against plans of all ranks: what each rank runs is the same, and so is the forecast.
#include "compiler/rank_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <regex>

#include "compiler/fake_target.h"
#include "compiler/mesh_gpt.h"
#include "plan/classes.h"
#include "plan/json/json.h"
#include "plan/ranks.h"
#include "plan/time/simulator.h"
#include "plan/transfers.h"
#include "plan/verify.h"
#include "support/error_of.h"
#include "support/soak.h"

namespace sluice::compiler {
namespace {

using test::message_of;
using testing::HasSubstr;

using Groups = std::map<std::vector<int>, int>;

// Writes as text what a rank runs, without the numbers by which names tell ranks apart. Groups are numbered by their
// ranks, in which order both plans find a schedule does not count.
std::string text_of(plan::RankPart part, Groups& groups) {
  for (plan::Kernel& k : part.plan.kernels) {
    if (k.collective < 0) continue;
    k.collective = groups.emplace(part.groups.at(k.collective), static_cast<int>(groups.size())).first->second;
  }
  // Places of buffers are decided for all ranks of a plan together; the verifier proves of each plan that none overlap.
  for (plan::Buffer& b : part.plan.buffers) b.offset = 0;
  for (plan::Arena& a : part.plan.arenas) a.bytes = a.lower_bound = 0;
  for (plan::Stream& s : part.plan.streams) s.index = std::min(s.index, plan::kFirstLane);
  part.plan.certificate.clear();
  static const std::regex numbers("(#\\d+)|(@\\d+(?=[^/\\d]))|(\\d+/(?=cpu|host))");
  return std::regex_replace(plan::to_json(part.plan), numbers, "");
}

// The first place at which two texts differ.
std::string difference(const std::string& one, const std::string& other) {
  if (one == other) return "";
  const auto [at, there] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  const auto around = [](const std::string& text, std::ptrdiff_t place) {
    const std::ptrdiff_t from = std::max<std::ptrdiff_t>(0, place - 200);
    return text.substr(static_cast<size_t>(from), 400);
  };
  return around(one, at - one.begin()) + "\nbut in the plan of all ranks\n" + around(other, there - other.begin());
}

// Conversions in which ranks of a class would do different things take other nodes than in the plan that compile()
// makes. tests/distributed/test_rank_classes.py compares results with those of that plan.
plan::Plan whole_of(const MeshGpt& gpt) {
  return compile_classes(gpt.graph, PaperTarget(gpt.options.ranks), gpt.options, kEveryRank).plan;
}
plan::Plan section_of(const MeshGpt& gpt, int rank) {
  return compile_classes(gpt.graph, PaperTarget(gpt.options.ranks), gpt.options, rank).plan;
}
plan::Plan timed(const plan::Plan& plan) {
  return plan::on_machine(plan::side_by_side(plan), {{{"*", "*", 5000, 50e9}}});
}

class Sizes : public testing::TestWithParam<GptSizes> {};

TEST_P(Sizes, EachRankRunsWhatItRunsInThePlanOfAll) {
  MeshGpt gpt = mesh_gpt(GetParam());
  gpt.options.fast_quotas = false;  // whose search takes a time that depends on the size of the plan
  const plan::Plan whole = whole_of(gpt);
  const int ranks = gpt.options.ranks, step = std::max(1, ranks / 9);
  for (int rank = 0; rank < ranks; rank += step) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    const plan::Plan section = section_of(gpt, rank);
    Groups groups;
    const std::string expected = text_of(plan::part_of(whole, rank), groups),
                      made = text_of(plan::part_of(section, rank), groups);
    ASSERT_EQ(difference(made, expected), "");
  }
}

TEST_P(Sizes, TheForecastIsTheSame) {
  MeshGpt gpt = mesh_gpt(GetParam());
  gpt.options.fast_quotas = false;
  const plan::SimulateOptions options{.steps = 4};
  const plan::Simulation all = plan::simulate(timed(whole_of(gpt)), options);
  const plan::Simulation one = plan::simulate(timed(section_of(gpt, 0)), options);
  EXPECT_GT(one.period_ns, 0);
  // A rank that is the first along two axes makes one constant of a byte for both, where others make two.
  EXPECT_NEAR(one.period_ns, all.period_ns, 1e-7 * all.period_ns);
  EXPECT_NEAR(one.total_ns, all.total_ns, 1e-7 * all.total_ns);
}

TEST_P(Sizes, SectionsTogetherAreAPlanOfAllRanks) {
  if (GetParam().ranks() > 16) return;  // all sections, and the proof of all ranks together, take long
  const MeshGpt gpt = mesh_gpt(GetParam());
  std::vector<plan::Plan> sections = {section_of(gpt, 0)};
  const plan::Classes classes = plan::classes_of(sections[0]).value();
  for (int p = 1; p < classes.positions(); ++p)
    sections.push_back(section_of(gpt, classes.ranks[0][static_cast<size_t>(p)]));
  const plan::Plan all = plan::unrolled(sections);
  EXPECT_EQ(plan::rank_count(all), gpt.options.ranks);
  EXPECT_EQ(plan::verify(all).str(), "");
}

INSTANTIATE_TEST_SUITE_P(Gpt, Sizes,
                         testing::Values(GptSizes{.dp = 2}, GptSizes{.tp = 2}, GptSizes{.pp = 2},
                                         GptSizes{.dp = 2, .tp = 2}, GptSizes{.dp = 2, .pp = 2, .micro = 4}, GptSizes{},
                                         GptSizes{.tp = 2, .pp = 2}, GptSizes{.dp = 2, .tp = 2, .pp = 2},
                                         GptSizes{.dp = 2, .tp = 2, .pp = 2, .micro = 4},
                                         GptSizes{.layers = 4, .dp = 4, .pp = 4, .micro = 4}, GptSizes{.dp = 16},
                                         GptSizes{.dp = 4, .tp = 4}, GptSizes{.layers = 1, .dp = 8, .tp = 8}),
                         [](const auto& info) {
                           const GptSizes& s = info.param;
                           return fmt::format("Dp{}Tp{}Pp{}Micro{}", s.dp, s.tp, s.pp, s.micro);
                         });

// The size of the plan does not depend on the ranks of an axis, but for the parts that a rank exchanges.
TEST(RankClasses, ManyRanksMakeNoLargerPlan) {
  const auto kernels = [](int dp) {
    return section_of(mesh_gpt({.hidden = 1024, .vocabulary = 1024, .dp = dp, .tp = 2}), 0).kernels.size();
  };
  EXPECT_EQ(kernels(16), kernels(512));
}

// 16 x 16 x 16: sixteen stages of a layer each, of which the plan has one rank each.
TEST(RankClasses, FourThousandRanksAreCompiledAndProved) {
  const MeshGpt gpt = mesh_gpt({.layers = 16, .hidden = 64, .heads = 16, .dp = 16, .tp = 16, .pp = 16, .micro = 2});
  ASSERT_EQ(gpt.options.ranks, 4096);
  const auto begin = std::chrono::steady_clock::now();
  const plan::Plan plan = section_of(gpt, 4095);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(plan::rank_count(plan), 16);
  EXPECT_EQ(plan::job_ranks(plan), 4096);
  EXPECT_EQ(plan::verify(plan).str(), "");
  test::report_count("4,096 ranks of 16 x 16 x 16 compiled and proved",
                     std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), "ms");
  test::report_count("4,096 ranks of 16 x 16 x 16, the plan", static_cast<int64_t>(plan::to_json(plan).size()),
                     "bytes");
}

plan::Plan compile_text(int ranks, const std::string& body, int rank = 0) {
  CompileOptions options;
  options.ranks = ranks;
  return compile_classes(graph::parse("graph \"g\" {\n" + body + "}\n", "g", builtin_ops()), PaperTarget(ranks),
                         options, rank)
      .plan;
}

std::string moved(const std::string& shape, const std::string& from, const std::string& to) {
  const std::string type = " : float32" + shape + "\n";
  return "  %0 = input \"x\"" + type + "  %1 = to_global(%0) {" + from + "}" + type + "  %2 = exp(%1)" + type +
         "  %3 = to_global(%2) {" + to + "}" + type + "  %4 = exp(%3)" + type + "  output \"y\" = %4\n";
}
constexpr const char* kTwoRanks = "mesh = \"cpu:0,1/cpu:0\", sbp = ";

TEST(RankClasses, WhatIsNotUniformIsRefused) {
  const std::string two = kTwoRanks;
  const auto refused = [&](int ranks, const std::string& body) {
    return message_of([&] { compile_text(ranks, body); });
  };
  const std::string without = "; compile all ranks, which is what enable_rank_classes(False) does";
  EXPECT_EQ(refused(2, moved("(5, 4)", two + "\"S(0)\"", two + "\"B\"")),
            "classes of ranks: float32(5, 4) as S(0): parts of different sizes" + without);
  EXPECT_EQ(refused(3, moved("(4, 4)", two + "\"S(0)\"", two + "\"B\"")),
            "classes of ranks: rank 2 is on no mesh" + without);
  EXPECT_EQ(refused(3, moved("(4, 4)", two + "\"S(0)\"", "mesh = \"1/cpu:0,2/cpu:0\", sbp = \"B\"")),
            "classes of ranks: rank 1 is on a mesh of 2 ranks from 0 to 1 and on one of 2 ranks from 1 to 2" + without);
  EXPECT_EQ(refused(3, moved("(4, 4)", two + "\"S(0)\"", "mesh = \"2/cpu:0\", sbp = \"B\"")),
            "classes of ranks: meshes of 2 ranks from 0 to 1 and of rank 2" + without);
  const std::string turned = "mesh = \"1/cpu:0,0/cpu:0\", sbp = ";
  EXPECT_EQ(refused(2, moved("(4, 4)", turned + "\"S(0)\"", turned + "\"B\"")),
            "classes of ranks: a part of rank 1 goes to a rank at another position" + without);
  EXPECT_EQ(refused(2, "  %0 = input \"x\" : float32(2,)\n  output \"y\" = %0\n"),
            "classes of ranks: rank 0 is on no mesh" + without);
}

// Parts go to the rank at their position, and from there to the others of its class.
TEST(RankClasses, PartsCrossAtTheirPosition) {
  const std::string two = kTwoRanks, others = "mesh = \"2/cpu:0,3/cpu:0\", sbp = ";
  for (const char* from : {"\"S(0)\"", "\"B\""})
    for (const char* to : {"\"S(0)\"", "\"S(1)\"", "\"B\"", "\"P\""})
      for (const int rank : {0, 1, 2, 3})
        EXPECT_EQ(plan::job_ranks(compile_text(4, moved("(4, 4)", two + from, others + to), rank)), 4);
}

TEST(RankClasses, APartIsOfARankOfTheSection) {
  const std::string two = kTwoRanks, body = moved("(4, 4)", two + "\"S(0)\"", two + "\"B\"");
  EXPECT_EQ(plan::classes_of(compile_text(2, body, 1)).value().position, 1);
  EXPECT_EQ(message_of([&] { plan::part_of(compile_text(2, body, 1), 0); }),
            "plan 'plan': is of the ranks at position 1 of their classes; rank 0 is none of them");
  EXPECT_THAT(message_of([&] { compile_text(2, body, 2); }), HasSubstr("rank 2 of a job of 2; must be one of it"));
}

}  // namespace
}  // namespace sluice::compiler
