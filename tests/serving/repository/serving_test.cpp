// From a folder to an answer: layout, versions, what the server tells of itself.
#include "tests/serving/repository/fixture.h"

namespace sluice::serving::test {
namespace {

class ServingTest : public RepositoryTest {};

TEST_F(ServingTest, ServesTheNewestVersionOfABareFolder) {
  put("m", 1, 10);
  put("m", 2, 20);
  serve_all();
  EXPECT_EQ(values("m"), (Floats{20, 40, 60}));
  EXPECT_EQ(index(), "m 2 READY");
  EXPECT_EQ(ask(*server_, "m", {1, 2, 3}).get().version, "2");
  EXPECT_EQ(ask(*server_, "m", {1, 2, 3}).get().output, "OUTPUT_0");
}

}  // namespace
}  // namespace sluice::serving::test
