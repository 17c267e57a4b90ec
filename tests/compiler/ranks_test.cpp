// Graphs over devices of several ranks: whose each input, output and variable is, what travels, and that what each rank
// gets is a plan.
#include "plan/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/compiler.h"
#include "compiler/fake_target.h"
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
std::vector<plan::Part> parts_of(const plan::Plan& plan) {
  std::vector<plan::Part> parts;
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
  EXPECT_THAT(sent(plan), UnorderedElementsAre(24, 24, 4, 4));  // the gradient and the loss, both ways
  const std::vector<plan::Part> parts = parts_of(plan);
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

// What lies on no mesh, every rank has; so nothing travels on to one.
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
  for (const plan::Part& part : parts_of(plan)) {
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
  EXPECT_THAT(sent(plan), UnorderedElementsAre(8, 8));  // the output's parts
  const std::vector<plan::Part> parts = parts_of(plan);
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
  for (const plan::Part& part : parts_of(plan)) {
    EXPECT_EQ(part.plan.outputs.size(), 1u);
    const auto& actors = part.plan.actors;
    for (const plan::ActorRole role : {plan::ActorRole::kFeed, plan::ActorRole::kSink})
      EXPECT_EQ(std::count_if(actors.begin(), actors.end(), [&](const plan::Actor& a) { return a.role == role; }), 1);
  }
}

}  // namespace
}  // namespace sluice::compiler
