#include "plan/extents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::plan {
namespace {

using testing::ElementsAre;

TEST(Extents, NamesTellAndAreTold) {
  const TensorType whole{DType::kFloat32, {3, 4}}, extent{DType::kInt64, {}};
  const std::vector<NamedType> outputs = {
      {"y[1=words]", extent}, {"y", whole},    {"n", extent},           {"y[2=words]", extent}, {"z[0=rows]", extent},
      {"y[0=rows]", whole},   {"y[0]", whole}, {"y[0][1=a=b]", extent}, {"y[x=rows]", extent}};
  const std::vector<ResultExtent> found = result_extents(outputs);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(outputs[found[0].output].name + " " + std::to_string(found[0].axis) + " " + found[0].dim, "y 1 words");
  EXPECT_EQ(outputs[found[1].output].name + " " + std::to_string(found[1].axis) + " " + found[1].dim, "y[0] 1 a=b");
  EXPECT_EQ(extent_name("y[0]", 1, "a=b"), outputs[found[1].extent].name);
  std::vector<std::string> seen;
  for (const NamedType& output : visible(outputs)) seen.push_back(output.name);
  EXPECT_THAT(seen, ElementsAre("y", "n", "y[2=words]", "z[0=rows]", "y[0=rows]", "y[0]", "y[x=rows]"));
  EXPECT_EQ(visible_extents(outputs)[0].output, 0);
  EXPECT_EQ(visible_extents(outputs)[1].output, 5);
}

}  // namespace
}  // namespace sluice::plan
