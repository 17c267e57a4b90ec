// Graphs over devices of several ranks: whose each input, output and variable is, what travels, and that what each rank
// gets is a plan.
#include "plan/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/collectives.h"
#include "compiler/compiler.h"
#include "compiler/fake_target.h"
#include "compiler/lowering/lowering.h"
#include "plan/transfers.h"
#include "plan/verify.h"

namespace sluice::compiler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class RanksTarget : public FakeTarget {
 public:
  explicit RanksTarget(int ranks) : ranks_(ranks) {}
  std::vector<plan::DeviceDesc> devices() const override {
    std::vector<plan::DeviceDesc> all;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (plan::DeviceDesc desc : FakeTarget::devices()) {
        desc.device.rank = rank;
        all.push_back(desc);
      }
    }
    return all;
  }

 private:
  int ranks_;
};

plan::Plan compile_for(int ranks, const std::string& body, const std::map<std::string, std::string>& components = {}) {
  CompileOptions options;
  options.ranks = ranks;
  for (const auto& [name, where] : components) {
    const size_t space = where.find(' ');
    options.components[name] = {parse_mesh(where.substr(space + 1)), parse_sbp(where.substr(0, space))};
  }
  return compile(graph::parse("graph \"g\" {\n" + body + "}\n", "g", builtin_ops()), RanksTarget(ranks), options).plan;
}

// The parts of a plan, all of which verify.
std::vector<plan::RankPart> parts_of(const plan::Plan& plan) {
  std::vector<plan::RankPart> parts;
  for (int rank = 0; rank < plan::rank_count(plan); ++rank) {
    parts.push_back(plan::part_of(plan, rank));
    EXPECT_EQ(plan::verify(parts.back().plan).str(), "") << "rank " << rank;
  }
  return parts;
}

template <class T>
std::vector<std::string> names(const std::vector<T>& list) {
  std::vector<std::string> names;
  for (const T& item : list) names.push_back(item.name);
  return names;
}

// Bytes of the registers that are sent from rank to rank, in order.
std::vector<uint64_t> sent(const plan::Plan& plan) {
  std::vector<uint64_t> bytes;
  for (const plan::Kernel& kernel : plan::with_transfers(plan).kernels)
    if (kernel.op == "send") bytes.push_back(kernel.inputs.at(0).spec.extent_bytes());
  return bytes;
}

// "all_gather 24: 0 1" for each call: what a rank gives, and who takes part. Each rank's in the order of its stream.
std::map<int, std::vector<std::string>> met(const plan::Plan& plan) {
  const std::map<int, std::vector<int>> groups = plan::ranks_of_groups(plan);
  std::map<int, std::vector<std::string>> calls;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    for (const plan::Instr& i : plan.actors[a].program) {
      if (i.kind != plan::InstrKind::kRun || plan.kernels[i.index].collective < 0) continue;
      const plan::Kernel& k = plan.kernels[i.index];
      EXPECT_EQ(plan.streams[plan.actors[a].stream].kind, plan::StreamKind::kCollective) << k.name;
      calls[plan::rank_of(plan, static_cast<int>(a))].push_back(
          fmt::format("{} {}: {}", k.op, k.inputs.at(0).spec.extent_bytes(), fmt::join(groups.at(k.collective), " ")));
    }
  }
  return calls;
}
// The calls of every rank, where they are all the same.
std::vector<std::string> met_by_all(const plan::Plan& plan) {
  const auto calls = met(plan);
  for (const auto& [rank, list] : calls) EXPECT_EQ(list, calls.begin()->second) << "rank " << rank;
  EXPECT_THAT(calls, testing::SizeIs(testing::AnyOf(0, plan::rank_count(plan))));
  return calls.empty() ? std::vector<std::string>() : calls.begin()->second;
}

// A batch in two parts, a weight on both ranks.
std::string data_parallel(const std::string& mesh) {
  const std::string batch = "{mesh = \"" + mesh + "\", sbp = \"S(0)\"}",
                    weight = "{mesh = \"" + mesh + "\", sbp = \"B\"}";
  return "  %0 = input \"x\" : float32(4, 3)\n"
         "  %1 = variable \"w\" : float32(2, 3)\n"
         "  %2 = variable \"lr\" : float32()\n"
         "  %3 = to_global(%0) " +
         batch +
         " : float32(4, 3)\n"
         "  %4 = to_global(%1) " +
         weight +
         " : float32(2, 3)\n"
         "  %5 = linear(%3, %4, none) {activation = \"none\"} : float32(4, 2)\n"
         "  %6 = sum(%5) {dim = none, keepdim = false} : float32()\n"
         "  %7 = full() {shape = [4, 2], value = 1.0, dtype = float32} : float32(4, 2)\n"
         "  %8 = matmul(%7, %3) {transpose_a = true, transpose_b = false} : float32(2, 3)\n"
         "  %9 = sgd_update(%1, %8, %2) {weight_decay = 0.0, maximize = false} : float32(2, 3)\n"
         "  output \"loss\" = %6\n"
         "  update \"w\" = %9\n";
}

class DataParallel : public testing::TestWithParam<const char*> {};

TEST_P(DataParallel, EachRankHasItsPartAndTheSumsTravel) {
  const std::string kind = GetParam(), mesh = kind + ":0,1/" + kind + ":0";
  const plan::Plan plan = compile_for(2, data_parallel(mesh), {{"x", "S(0) " + mesh}, {"w", "B " + mesh}});
  EXPECT_THAT(met_by_all(plan), UnorderedElementsAre("all_gather 24: 0 1", "all_gather 4: 0 1"));  // gradient, loss
  EXPECT_THAT(sent(plan), IsEmpty());
  const std::vector<plan::RankPart> parts = parts_of(plan);
  ASSERT_EQ(parts.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string on = rank == 0 ? "" : "1/";
    const plan::Plan& part = parts[rank].plan;
    ASSERT_THAT(names(part.inputs), ElementsAre("x@" + on + kind + ":0"));
    EXPECT_EQ(part.inputs[0].spec.shape, Shape({2, 3}));
    EXPECT_THAT(names(part.outputs), ElementsAre("loss@" + on + "cpu:0"));
    EXPECT_THAT(names(part.variables), UnorderedElementsAre("w@" + on + kind + ":0", "lr@" + on + "cpu:0"));
    for (const plan::Space& space : part.spaces) EXPECT_EQ(space.device.rank, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DataParallel, testing::Values("cpu", "sim"));

// Every rank has a value that lies on no mesh; so nothing travels on to one.
TEST(CompileRanks, EveryRankReadsItsOwnCopy) {
  const plan::Plan plan =
      compile_for(3,
                  "  %0 = input \"x\" : float32(6, 3)\n"
                  "  %1 = relu(%0) : float32(6, 3)\n"
                  "  %2 = to_global(%1) {mesh = \"sim:0,1/sim:0,2/sim:0\", sbp = \"S(0)\"} : float32(6, 3)\n"
                  "  %3 = exp(%2) : float32(6, 3)\n"
                  "  %4 = to_global(%3) {mesh = \"1/sim:0\", sbp = \"B\"} : float32(6, 3)\n"
                  "  output \"here\" = %1\n"
                  "  output \"there\" = %4\n");
  // Two parts to rank 1, and all of it from there to the others.
  EXPECT_THAT(sent(plan), UnorderedElementsAre(24, 24, 72, 72));
  for (const plan::RankPart& part : parts_of(plan)) {
    EXPECT_EQ(part.plan.inputs[0].spec.shape, Shape({6, 3}));
    EXPECT_EQ(part.plan.outputs.size(), 2u);
  }
}

// A local variable is each rank's own; a component stays where it lies, whoever reads it.
TEST(CompileRanks, OnlyComponentsRestOnAMesh) {
  const std::string mesh = "sim:0,1/sim:0";
  const plan::Plan plan = compile_for(2,
                                      "  %0 = variable \"local\" : float32(4)\n"
                                      "  %1 = variable \"global\" : float32(4)\n"
                                      "  %2 = to_global(%0) {mesh = \"" +
                                          mesh +
                                          "\", sbp = \"S(0)\"} : float32(4)\n"
                                          "  %3 = to_global(%1) {mesh = \"" +
                                          mesh +
                                          "\", sbp = \"S(0)\"} : float32(4)\n"
                                          "  %4 = add(%2, %3) : float32(4)\n"
                                          "  %5 = exp(%0) : float32(4)\n"
                                          "  output \"y\" = %1\n"
                                          "  update \"global\" = %4\n"
                                          "  update \"local\" = %5\n",
                                      {{"global", "S(0) " + mesh}});
  EXPECT_THAT(met_by_all(plan), ElementsAre("all_gather 8: 0 1"));  // the output's parts
  EXPECT_THAT(sent(plan), IsEmpty());
  const std::vector<plan::RankPart> parts = parts_of(plan);
  for (int rank = 0; rank < 2; ++rank) {
    for (const plan::Variable& v : parts[rank].plan.variables) {
      const bool local = v.name.starts_with("local@");
      EXPECT_EQ(v.spec.shape, local ? Shape({4}) : Shape({2})) << v.name;
      EXPECT_EQ(parts[rank].plan.spaces[v.space].kind == plan::SpaceKind::kDevice, !local) << v.name;
      EXPECT_EQ(v.name.find("1/") != std::string::npos, rank == 1) << v.name;
    }
  }
}

// A rank that has nothing to do but to be told the result has a feed and a sink all the same.
TEST(CompileRanks, StagesOnDifferentRanks) {
  const plan::Plan plan = compile_for(3,
                                      "  %0 = input \"x\" : float32(2, 3)\n"
                                      "  %1 = to_global(%0) {mesh = \"cpu:0\", sbp = \"B\"} : float32(2, 3)\n"
                                      "  %2 = exp(%1) : float32(2, 3)\n"
                                      "  %3 = to_global(%2) {mesh = \"2/cpu:0\", sbp = \"B\"} : float32(2, 3)\n"
                                      "  %4 = exp(%3) : float32(2, 3)\n"
                                      "  output \"y\" = %4\n");
  EXPECT_THAT(sent(plan), UnorderedElementsAre(24, 24, 24));
  for (const plan::RankPart& part : parts_of(plan)) {
    EXPECT_EQ(part.plan.outputs.size(), 1u);
    const auto& actors = part.plan.actors;
    for (const plan::ActorRole role : {plan::ActorRole::kFeed, plan::ActorRole::kSink})
      EXPECT_EQ(std::count_if(actors.begin(), actors.end(), [&](const plan::Actor& a) { return a.role == role; }), 1);
  }
}

struct Conversion {
  const char *shape, *from, *to;
  std::vector<std::string> calls;  // of three ranks
};

class Conversions : public testing::TestWithParam<Conversion> {};

// A partial sum travels as it is where it cannot be cut evenly, else once in parts and once added up.
TEST_P(Conversions, BetweenRanksAreCollectives) {
  const Conversion c = GetParam();
  const auto on = [&](const std::string& sbp) { return "{mesh = \"sim:0,1/sim:0,2/sim:0\", sbp = \"" + sbp + "\"}"; };
  const std::string type = std::string(" : float32") + c.shape + "\n";
  const plan::Plan plan =
      compile_for(3,
                  "  %0 = input \"x\"" + type + "  %1 = to_global(%0) " + on(c.from) + type + "  %2 = exp(%1)" + type +
                      "  %3 = to_global(%2) " + on(c.from) + type + "  %4 = to_global(%3) " + on(c.to) + type +
                      "  %5 = to_global(%4) " + on("B") + type + "  output \"y\" = %5\n",
                  {{"x", std::string(c.from) + " sim:0,1/sim:0,2/sim:0"}});
  EXPECT_EQ(met_by_all(plan), c.calls);
  EXPECT_EQ(sent(plan).empty(), !c.calls.empty());
  parts_of(plan);
}

INSTANTIATE_TEST_SUITE_P(
    All, Conversions,
    testing::Values(Conversion{"(6, 3)", "S(0)", "B", {"all_gather 24: 0 1 2"}},
                    Conversion{"(6, 3)", "S(1)", "B", {"all_gather 24: 0 1 2"}},
                    Conversion{"(6, 3)", "S(0)", "S(1)", {"all_to_all 24: 0 1 2", "all_gather 24: 0 1 2"}},
                    Conversion{"(6, 3)", "S(1)", "S(0)", {"all_to_all 24: 0 1 2", "all_gather 24: 0 1 2"}},
                    Conversion{
                        "(2, 1, 1, 1, 1, 1, 3, 3)", "S(6)", "S(7)", {"all_to_all 24: 0 1 2", "all_gather 24: 0 1 2"}},
                    Conversion{"(5, 3)", "S(0)", "B", {}}, Conversion{"(3, 4)", "S(0)", "S(1)", {}}));

std::string partial(const std::string& shape, const std::string& to) {
  const std::string mesh = "mesh = \"sim:0,1/sim:0,2/sim:0\"", type = " : float32" + shape + "\n";
  return "  %0 = input \"x\" : float32" + shape + "\n  %1 = to_global(%0) {" + mesh + ", sbp = \"P\"}" + type +
         "  %2 = to_global(%1) {" + mesh + ", sbp = \"" + to + "\"}" + type + "  %3 = exp(%2)" + type +
         "  output \"y\" = %3\n";
}

TEST(CompileRanks, SumsAreExchangedAndAddedInOneOrder) {
  const std::map<std::string, std::string> addends = {{"x", "P sim:0,1/sim:0,2/sim:0"}};
  const struct {
    const char *shape, *to;
    std::vector<std::string> calls;
  } cases[] = {{"(4, 3)", "B", {"all_to_all 48: 0 1 2", "all_gather 16: 0 1 2"}},
               {"(2, 5)", "B", {"all_gather 40: 0 1 2"}},
               {"(4, 3)", "S(1)", {"all_to_all 48: 0 1 2", "all_gather 16: 0 1 2"}}};  // and the output
  for (const auto& c : cases) {
    const plan::Plan plan = compile_for(3, partial(c.shape, c.to), addends);
    EXPECT_EQ(met_by_all(plan), c.calls) << c.shape << c.to;
    EXPECT_THAT(sent(plan), IsEmpty());
    for (const plan::RankPart& part : parts_of(plan)) {
      std::vector<std::string> adds;
      for (const plan::Kernel& k : part.plan.kernels)
        if (k.op == "add") adds.push_back(k.name);
      EXPECT_EQ(adds.size(), 2u) << c.shape << c.to;
    }
  }
}

// From one device of each rank to another: nothing travels but to them.
TEST(CompileRanks, PartsStayOnTheirRanks) {
  const plan::Plan plan = compile_for(2,
                                      "  %0 = input \"x\" : float32(4)\n"
                                      "  %1 = to_global(%0) {mesh = \"cpu:0,1/cpu:0\", sbp = \"S(0)\"} : float32(4)\n"
                                      "  %2 = exp(%1) : float32(4)\n"
                                      "  %3 = to_global(%2) {mesh = \"sim:0,1/sim:0\", sbp = \"S(0)\"} : float32(4)\n"
                                      "  %4 = exp(%3) : float32(4)\n"
                                      "  output \"y\" = %4\n");
  EXPECT_THAT(met_by_all(plan), ElementsAre("all_gather 8: 0 1"));  // the output
  EXPECT_THAT(sent(plan), IsEmpty());
}

// A rank with two devices, or devices in another order than the ranks', exchange registers.
TEST(CompileRanks, OtherMeshesSendRegisters) {
  for (const char* mesh : {"sim:0-1,1/sim:0", "1/sim:0,sim:0"}) {
    const plan::Plan plan = compile_for(2,
                                        "  %0 = input \"x\" : float32(6, 3)\n"
                                        "  %1 = to_global(%0) {mesh = \"" +
                                            std::string(mesh) +
                                            "\", sbp = \"S(0)\"} : float32(6, 3)\n"
                                            "  %2 = exp(%1) : float32(6, 3)\n"
                                            "  output \"y\" = %2\n");
    EXPECT_THAT(met(plan), IsEmpty()) << mesh;
    EXPECT_FALSE(sent(plan).empty()) << mesh;
    parts_of(plan);
  }
}

// Two stages, each with collectives of its own ranks, joined by registers that wait for them, there and back.
TEST(CompileRanks, GroupsOfSomeRanks) {
  const auto on = [](const std::string& mesh, const std::string& sbp) {
    return "{mesh = \"" + mesh + "\", sbp = \"" + sbp + "\"} : float32(4, 2)\n";
  };
  const std::string first = "cpu:0,1/cpu:0", last = "2/cpu:0,3/cpu:0", type = " : float32(4, 2)\n";
  const plan::Plan plan = compile_for(
      4, "  %0 = input \"x\"" + type + "  %1 = to_global(%0) " + on(first, "S(0)") + "  %2 = exp(%1)" + type +
             "  %3 = to_global(%2) " + on(first, "S(1)") + "  %4 = tanh(%3)" + type + "  %5 = to_global(%4) " +
             on(last, "S(1)") + "  %6 = exp(%5)" + type + "  %7 = to_global(%6) " + on(last, "S(0)") +
             "  %8 = tanh(%7)" + type + "  %9 = to_global(%8) " + on(first, "S(0)") + "  %10 = mul(%9, %2)" + type +
             "  %11 = to_global(%10) " + on(first, "B") + "  output \"y\" = %11\n");
  const auto calls = met(plan);
  EXPECT_THAT(calls.at(0), ElementsAre("all_to_all 16: 0 1", "all_gather 16: 0 1"));
  EXPECT_EQ(calls.at(1), calls.at(0));
  EXPECT_THAT(calls.at(2), ElementsAre("all_to_all 16: 2 3"));
  EXPECT_EQ(calls.at(3), calls.at(2));
  EXPECT_FALSE(sent(plan).empty());
  for (const plan::RankPart& part : parts_of(plan)) EXPECT_EQ(part.plan.outputs.size(), 1u);
}

// A node that could free memory between two ranks' nodes of a call comes after both.
TEST(CompileRanks, TheNodesOfACallStayTogether) {
  graph::Graph graph;
  graph::GraphBuilder builder(graph, {});
  const Value x = builder.value(graph.add_input("x", {DType::kFloat32, {4}}));
  const Attrs call = {Ints{0, 1}, int64_t{0}};
  const Value first = builder.call(all_gather_op(), {&x, 1}, call)[0];
  builder.call(all_gather_op(), {&x, 1}, call);
  builder.call(builtin_ops().get("relu"), {&first, 1}, {});
  EXPECT_THAT(order_of_nodes(graph), ElementsAre(0, 1, 2));
}

// All ranks' nodes of a call wait for what one of them waits for: rank 1 makes its part from what rank 0 makes of the
// call before.
TEST(CompileRanks, ACallWaitsForWhatAnyRankGivesToIt) {
  const std::string both = "cpu:0,1/cpu:0", type = " : float32(4)\n";
  const auto on = [](const std::string& mesh, const std::string& sbp) {
    return "{mesh = \"" + mesh + "\", sbp = \"" + sbp + "\"} : float32(4)\n";
  };
  std::string body = "  %0 = input \"x\"" + type + "  %1 = to_global(%0) " + on(both, "S(0)");
  for (int i = 1; i < 16; i += 5) {
    body += fmt::format("  %{} = exp(%{}){}  %{} = to_global(%{}) {}", i + 1, i, type, i + 2, i + 1, on(both, "B"));
    body +=
        fmt::format("  %{} = to_global(%{}) {}  %{} = tanh(%{}){}", i + 3, i + 2, on("cpu:0", "B"), i + 4, i + 3, type);
    body += fmt::format("  %{} = to_global(%{}) {}", i + 5, i + 4, on(both, "S(0)"));
  }
  for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
    CompileOptions options;
    options.ranks = 2;
    options.granularity = granularity;
    const plan::Plan plan =
        compile(graph::parse("graph \"g\" {\n" + body + "  output \"y\" = %16\n}\n", "g", builtin_ops()),
                RanksTarget(2), options)
            .plan;
    EXPECT_THAT(met_by_all(plan), testing::SizeIs(4));
    parts_of(plan);
  }
}

// Whatever converts to whatever, on whichever ranks, in whatever order: verification, which knows nothing of how plans
// are made, finds that no rank waits for ever.
TEST(CompileRanks, RandomGraphsNeverBlock) {
  const std::vector<std::string> meshes = {"cpu:0,1/cpu:0,2/cpu:0,3/cpu:0",
                                           "sim:0,1/sim:0,2/sim:0,3/sim:0",
                                           "cpu:0,1/cpu:0",
                                           "2/sim:0,3/sim:0",
                                           "1/cpu:0,2/cpu:0",
                                           "sim:0,3/sim:0",
                                           "sim:0-1,1/sim:0",
                                           "3/cpu:0,cpu:0",
                                           "2/cpu:0"};
  const std::vector<std::string> ways = {"S(0)", "S(1)", "B", "P"};
  const std::string type = " : float32(4, 8)\n";
  size_t calls = 0, registers = 0;
  std::vector<unsigned> seeds(40);
  std::iota(seeds.begin(), seeds.end(), 0u);
  seeds.push_back(1555);  // a call waits for the call before it on another rank's stream
  for (const unsigned seed : seeds) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return static_cast<size_t>(random()) % n; };
    std::string body = "  %0 = input \"x\"" + type + "  %1 = variable \"v\"" + type;
    int last = 1;
    for (int i = 0; i < 10; ++i) {
      const std::string& mesh = meshes[pick(meshes.size())];
      const int made = last;
      for (int operand = 0; operand < 2; ++operand) {
        const std::string& way = ways[pick(ways.size())];
        const size_t from = pick(static_cast<size_t>(made) + 1);
        body += fmt::format("  %{} = to_global(%{}) {{mesh = \"{}\", sbp = \"{}\"}}", ++last, from, mesh, way) + type;
      }
      body += fmt::format("  %{} = add(%{}, %{})", last + 1, last, last - 1) + type;
      body += fmt::format("  %{} = {}(%{})", last + 2, pick(2) ? "exp" : "relu", last + 1) + type;
      last += 2;
    }
    body += fmt::format("  output \"y\" = %{}\n  output \"z\" = %{}\n  update \"v\" = %{}\n", last, last / 2, last - 1);
    for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
      SCOPED_TRACE(fmt::format("seed {}", seed));
      CompileOptions options;
      options.ranks = 4;
      options.granularity = granularity;
      plan::Plan plan;
      ASSERT_NO_THROW(
          plan =
              compile(graph::parse("graph \"g\" {\n" + body + "}\n", "g", builtin_ops()), RanksTarget(4), options).plan)
          << body;
      for (const plan::Kernel& k : plan.kernels) calls += k.collective >= 0;
      registers += sent(plan).size();
    }
  }
  EXPECT_GT(calls, 300u);
  EXPECT_GT(registers, 300u);
}

}  // namespace
}  // namespace sluice::compiler
