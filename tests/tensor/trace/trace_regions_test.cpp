// Which values belong to a region that is traced, to the outside, or to nobody any more.
#include "tensor/trace_regions.h"

#include <gtest/gtest.h>

#include "graph/op_def.h"
#include "memory/storage.h"

namespace sluice::test {
namespace {

struct PlainRegion final : TraceRegion {
  PlainRegion() : TraceRegion("test: a region", "leave it") {}
  std::vector<Value> bring(const Value& value) override { return {value}; }
};

class TraceRegionsTest : public testing::Test {
 protected:
  graph::ValueId node() {
    graph::Node node;
    node.op = &builtin_ops().get("neg");
    node.inputs = {input_};
    return graph_.nodes()[graph_.add_node(std::move(node))].outputs[0];
  }
  graph::Graph graph_;
  const graph::ValueId input_ = graph_.add_input("x", {DType::kFloat32, {2}});
  TraceRegions regions_{graph_};
};

TEST_F(TraceRegionsTest, WhatWasMadeBeforeIsOutside) {
  const graph::ValueId before = node();
  PlainRegion region;
  EXPECT_FALSE(regions_.any());
  regions_.begin(region, 1);
  EXPECT_EQ(&regions_.innermost(), &region);
  EXPECT_EQ(region.current, 1u);
  const graph::ValueId inside = node();
  EXPECT_TRUE(regions_.outside(input_));
  EXPECT_TRUE(regions_.outside(before));
  EXPECT_FALSE(regions_.outside(inside));
  regions_.end(false);
  EXPECT_FALSE(regions_.any());
  EXPECT_FALSE(regions_.closed(inside));
}

TEST_F(TraceRegionsTest, OwnsWhatIsNoCopyFromOutside) {
  PlainRegion region;
  const graph::ValueId before = node();
  regions_.begin(region, 0);
  const graph::ValueId own = node(), copy = node();
  region.copies.insert(copy);
  EXPECT_TRUE(regions_.owns(own));
  EXPECT_FALSE(regions_.owns(copy));
  EXPECT_FALSE(regions_.owns(before));
}

TEST_F(TraceRegionsTest, ARegionThatIsBegunAgainHasItsFirstBegin) {
  PlainRegion region;
  regions_.begin(region, 0);
  const graph::ValueId first = node();
  regions_.end(false);
  const uint64_t storage = region.first_storage;
  regions_.begin(region, 1);
  EXPECT_FALSE(regions_.outside(first)) << "its other way made it";
  EXPECT_EQ(region.first_storage, storage);
}

TEST_F(TraceRegionsTest, NodesOfAClosedRegionAreForNobody) {
  const graph::ValueId before = node();
  PlainRegion region;
  regions_.begin(region, 0);
  const graph::ValueId inside = node();
  EXPECT_FALSE(regions_.closed(inside)) << "not yet";
  regions_.end(true);
  const graph::ValueId after = node();
  EXPECT_TRUE(regions_.closed(inside));
  for (const graph::ValueId id : {input_, before, after, graph::kNoValue}) EXPECT_FALSE(regions_.closed(id)) << id;
}

TEST_F(TraceRegionsTest, OneInsideAnotherCanBeLeftForAWhile) {
  PlainRegion outer, inner;
  regions_.begin(outer, 0);
  const graph::ValueId value = node();
  regions_.begin(inner, 0);
  EXPECT_TRUE(regions_.outside(value));
  {
    const TraceRegions::Outside outside(regions_);
    EXPECT_EQ(&regions_.innermost(), &outer);
    EXPECT_FALSE(regions_.outside(value));
  }
  EXPECT_EQ(&regions_.innermost(), &inner);
}

}  // namespace
}  // namespace sluice::test
