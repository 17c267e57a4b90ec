// Kernels share one team of threads: a region of fewer makes OpenMP rebuild it for whoever opens the next one, and a
// region of one thread does nothing that the thread could not do without.
#include "graph/ops/matmul.h"
#include "ops/op_cases.h"
#include "support/team_sizes.h"

namespace sluice::test {
namespace {

class TeamsTest : public OpTest {
 protected:
  GradMode off{false};
};

#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)  // whose teams are of one thread
TEST(TeamWatchTest, SeesTheTeamOfAProduct) {
  EagerExecutor& eager = test_eager();
  const ExecutorScope scope(eager);
  const Tensor x = from_doubles({DType::kFloat32, {256, 256}}, noise(256 * 256, 1));
  const TeamWatch watch;
  ops::matmul(x, x);
  EXPECT_EQ(watch.sizes(), std::set<unsigned>{static_cast<unsigned>(eager.threads())});
}
#endif

TEST_P(TeamsTest, AreOfAllThreads) {
  for (size_t s = 0; s < op().samples.size(); ++s) {
    const Drawn drawn = draw(op(), s);
    const TeamWatch watch;
    drawn.run();
    for (const unsigned size : watch.sizes()) EXPECT_EQ(size, static_cast<unsigned>(eager.threads())) << drawn.label;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, TeamsTest, testing::ValuesIn(all_ops()), op_name);

}  // namespace
}  // namespace sluice::test
