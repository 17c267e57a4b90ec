#include "plan/extents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace sluice::plan {
namespace {

using testing::ElementsAre;

TEST(Extents, OutputsTellOfOthers) {
  const TensorType whole{DType::kFloat32, {3, 4}}, extent{DType::kInt64, {}};
  const std::vector<NamedType> outputs = {{"y's words", extent, ExtentOf{"y", 1, "words"}},
                                          {"y", whole},
                                          {"n", extent},
                                          {"z's rows", extent, ExtentOf{"z", 0, "rows"}},  // which is elsewhere
                                          {"x", whole},
                                          {"x's words", extent, ExtentOf{"x", 0, "words"}}};
  const std::vector<ResultExtent> found = result_extents(outputs);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(fmt::format("{} {} {} {}", found[0].output, found[0].axis, found[0].dim, found[0].extent), "1 1 words 0");
  EXPECT_EQ(fmt::format("{} {} {} {}", found[1].output, found[1].axis, found[1].dim, found[1].extent), "4 0 words 5");
  std::vector<std::string> seen;
  for (const NamedType& output : visible(outputs)) seen.push_back(output.name);
  EXPECT_THAT(seen, ElementsAre("y", "n", "x"));
  EXPECT_EQ(visible_extents(outputs)[0].output, 0);
  EXPECT_EQ(visible_extents(outputs)[1].output, 2);
}

TEST(Extents, AnAxisThatIsNotThereIsRefused) {
  const std::vector<NamedType> outputs = {{"y", {DType::kFloat32, {3}}},
                                          {"n", {DType::kInt64, {}}, ExtentOf{"y", 1, "words"}}};
  EXPECT_EQ(test::error_of([&] { result_extents(outputs); }),
            "value: output 'n': it tells how long axis 1 of 'y' is, which has rank 1");
}

}  // namespace
}  // namespace sluice::plan
