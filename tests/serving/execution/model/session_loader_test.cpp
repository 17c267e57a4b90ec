// Sessions from a bundle, or from one that is planned anew.
#include "serving/execution/model/session_loader.h"

#include <limits>

#include "serving/execution/fixture.h"
#include "support.h"

namespace sluice::serving::test {
namespace {

class SessionLoaderTest : public ExecutionTest {
 protected:
  SessionLoaderTest() : ExecutionTest(2) {}
  SessionLoader loader(const std::string& bundle, bool flush_denormals = true) {
    return {engine_, "model 'm'", bundle, nullptr, flush_denormals};
  }
  static Floats run(api::Session& session, const Floats& x = {1, 2, 3}) {
    return floats_in(session.run({float_tensor(1, 3, x)}).at(0));
  }
  static void ignore(uint64_t, const std::vector<api::Tensor>&, const std::string&) {}
  // A bundle whose plan has a kernel that no machine has; its graph is that of another.
  std::string foreign() {
    const fs::path path = dir_ / "foreign";
    fs::copy(bundle("b", doubling(1)), path, fs::copy_options::recursive);
    std::string plan = read_file(path / "plan.json");
    const std::string op = R"("op": "add")";
    EXPECT_NE(plan.find(op), std::string::npos) << plan;
    for (size_t at; (at = plan.find(op)) != std::string::npos;) plan.replace(at, op.size(), R"("op": "elsewhere")");
    std::ofstream(path / "plan.json", std::ios::binary) << plan;
    std::ofstream(path / "meta.json") << "{}";  // has no digest of the plan
    return path;
  }
};

TEST_F(SessionLoaderTest, AStepTellsItsOutputs) {
  SessionLoader one = loader(bundle("b", doubling(1)));
  Floats told;
  const auto session = one.load([&](uint64_t step, const std::vector<api::Tensor>& outputs, const std::string& error) {
    EXPECT_EQ(step, 0u);
    EXPECT_EQ(error, "");
    told = floats_in(outputs.at(0));
  });
  EXPECT_EQ(run(*session), (Floats{2, 4, 6}));
  EXPECT_EQ(told, (Floats{2, 4, 6}));
}

TEST_F(SessionLoaderTest, DenormalsAreFlushedUnlessItIsTold) {
  const float denormal = std::numeric_limits<float>::min() / 4;
  const std::string given = bundle("b", doubling(1));
  EXPECT_EQ(run(*loader(given, false).load(ignore), {1, denormal, 0}), (Floats{2, 2 * denormal, 0}));
  EXPECT_EQ(run(*loader(given).load(ignore), {1, denormal, 0}), (Floats{2, 0, 0}));
}

TEST_F(SessionLoaderTest, OneInstanceRunsTheBundleAsItIs) {
  const std::string given = bundle("b", doubling(1));
  SessionLoader one = loader(given);
  one.plan_for(1);
  EXPECT_EQ(one.bundle(), given);
}

TEST_F(SessionLoaderTest, SeveralInstancesHaveAPlanForTheirShareOfTheCores) {
  const std::string given = bundle("b", doubling(1));
  std::string made;
  {
    SessionLoader two = loader(given);
    two.plan_for(2);
    made = two.bundle();
    EXPECT_NE(made, given);
    EXPECT_TRUE(fs::exists(made));
    EXPECT_EQ(run(*two.load(ignore)), (Floats{2, 4, 6}));
  }
  EXPECT_FALSE(fs::exists(made)) << "it is gone with the loader";
  EXPECT_TRUE(fs::exists(given));
}

TEST_F(SessionLoaderTest, APlanOfAnotherMachineIsMadeAnewForTheFirstSession) {
  const std::string given = foreign();
  SessionLoader one = loader(given);
  EXPECT_NE(what_of([&] { one.load(ignore); }), "no error");
  EXPECT_EQ(one.bundle(), given);
  EXPECT_EQ(run(*one.load_first(ignore)), (Floats{2, 4, 6}));
  EXPECT_NE(one.bundle(), given);
  EXPECT_EQ(run(*one.load(ignore)), (Floats{2, 4, 6})) << "the others are of the plan that was made";
}

TEST_F(SessionLoaderTest, ABundleThatIsNotThereIsNotPlanned) {
  const std::string given = dir_ / "nowhere";
  SessionLoader one = loader(given);
  EXPECT_NE(what_of([&] { one.load_first(ignore); }), "no error");
  EXPECT_EQ(one.bundle(), given);
}

}  // namespace
}  // namespace sluice::serving::test
