// SessionOptions::flush_denormals, and the record of a plan: kernels take denormal numbers for zero and leave the
// thread as it was.
#include "base/denormals.h"

#include <limits>

#include "plan/query.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

constexpr float kDenormal = std::numeric_limits<float>::min() / 4;

class Denormals : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kFlushesDenormals) GTEST_SKIP() << "this processor always keeps denormals";
  }
  // What a plan makes of a denormal, one step, by a kernel that adds.
  float doubled(bool session_says, bool plan_says) {
    Plans b("doubling");
    b.stream("cpu:0", StreamKind::kCompute, 0);
    const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
    const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = kN * 4});
    const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = kN * 4});
    b.run(net, "add", {b.r(x), b.r(x)}, {b.r(y)});
    b.input("x", x, b.f32({kN}));
    b.output("y", b.r(y));
    Plan plan = b.build();
    if (plan_says) plan.options.emplace_back(plan::kFlushDenormals, true);
    Session session = Session::load(engine_, std::move(plan), {}, {.flush_denormals = session_says});
    return result(submit(session, filled(kDenormal)))[0];
  }
  Engine engine_{{.cores = 2}};
};

TEST_F(Denormals, AreZeroWhereTheSessionOrThePlanSaysSo) {
  EXPECT_EQ(doubled(false, false), 2 * kDenormal);
  EXPECT_EQ(doubled(true, false), 0.0f);
  EXPECT_EQ(doubled(false, true), 0.0f);
  EXPECT_EQ(doubled(false, false), 2 * kDenormal);
  EXPECT_FALSE(flushes_denormals());
}

}  // namespace
}  // namespace sluice::test
