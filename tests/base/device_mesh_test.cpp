// Device meshes, sbp as text, and how a size is cut.
#include "base/device_mesh.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/sbp.h"

namespace sluice {
namespace {

std::string error_of(std::string_view text, bool sbp = false) {
  try {
    sbp ? (void)parse_sbp(text) : (void)parse_mesh(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceMesh, ParsesAndPrints) {
  for (const char* text : {"sim:0", "sim:0-3", "sim:0,sim:2-3", "1/sim:0-1", "cpu:0,1/cpu:0"})
    EXPECT_EQ(parse_mesh(text).str(), text);
  EXPECT_EQ(parse_mesh("sim").str(), "sim:0");
  EXPECT_EQ(parse_mesh("sim:0,sim:1,sim:2").str(), "sim:0-2");
  EXPECT_EQ(parse_mesh("sim:1,sim:0").str(), "sim:1,sim:0");
  EXPECT_EQ(parse_mesh("sim:0-3").size(), 4);
  EXPECT_EQ(parse_mesh("1/sim:2-3")[1].str(), "1/sim:3");
}

TEST(DeviceMesh, NamesWhatIsWrong) {
  EXPECT_EQ(error_of("sim:0,sim:0"), "placement: device given twice: sim:0; each may appear once");
  EXPECT_EQ(error_of("cpu:0,sim:0"), "placement: kinds differ: cpu:0 and sim:0; all devices must be of one kind");
  EXPECT_EQ(error_of("sim:3-1"),
            "placement: bad run of devices: 'sim:3-1'; must be like sim:0-3, at most 4096 devices");
  EXPECT_EQ(
      error_of("GPU:0"),
      "device: bad kind: 'GPU'; must be a name of at most 16 of a-z, 0-9 and '_' that begins with a letter, as in "
      "'cpu' or 'sim:0'");
  EXPECT_EQ(error_of("sim:0-4000,1/sim:0-4000"), "placement: 8002 devices or more; at most 4096 are allowed");
  EXPECT_THROW(parse_mesh(""), Error);
  EXPECT_THROW(parse_mesh("sim:0-99999999999"), Error);
  EXPECT_THROW(DeviceMesh(std::vector<DeviceId>{}), Error);
}

TEST(DeviceMesh, HasAxes) {
  for (const char* text : {"sim:0-3 (2, 2)", "sim:0-3 (dp=2, tp=2)", "sim:0-1 (dp=2)", "sim:0-7 (2, 1, tp=4)"})
    EXPECT_EQ(parse_mesh(text).str(), text);
  EXPECT_EQ(shape_of(parse_mesh("sim:0-5 (2, 3)")), (MeshShape{2, 3}));
  EXPECT_EQ(shape_of(parse_mesh("sim:0-5")), MeshShape{6});
  EXPECT_EQ(coordinates({2, 3}, 4), (MeshShape{1, 1}));
  EXPECT_TRUE(parse_mesh("sim:0-3 (2, 2)") == parse_mesh("sim:0-3 (a=2, b=2)"));
  EXPECT_FALSE(parse_mesh("sim:0-3 (2, 2)") == parse_mesh("sim:0-3 (4, 1)"));
  EXPECT_FALSE(parse_mesh("sim:0-3 (2, 2)") == parse_mesh("sim:0-3"));
  EXPECT_EQ(error_of("sim:0-3 (2, 3)"), "placement: axes (2, 3) of 4 devices; their sizes must multiply to 4");
  EXPECT_EQ(error_of("sim:0-3 (2, 0)"), "placement: an axis of size 0; must be 1 to 4096");
  EXPECT_EQ(error_of("sim:0-3 (a=2, a=2)"), "placement: two axes are called 'a'; names must differ");
  EXPECT_EQ(error_of("sim:0-3 (2b=4)"),
            "placement: an axis is called '2b'; a name must be of letters, digits and '_', and begin with no digit");
  for (const char* text : {"sim:0-3 ()", "sim:0-3 (2,", "sim:0-3 (x)", "sim:0-3 (=4)", "sim:0-3 (4) "})
    EXPECT_THROW(parse_mesh(text), Error) << text;
}

TEST(NdSbp, IsNested) {
  EXPECT_EQ(parse_nd_sbp("S(0),B,P").str(), "S(0),B,P");
  EXPECT_THROW(parse_nd_sbp("S(0),"), Error);
  const GlobalPlacement placement = parse_placement("S(0),S(0) on sim:0-3 (2, 2)");
  EXPECT_EQ(placement.str(), "S(0),S(0) on sim:0-3 (2, 2)");
  EXPECT_EQ(placement_of(std::get<Strings>(placement_attrs(placement)[0].second), "S(0),S(0)", 0).str(),
            placement.str());
  EXPECT_THROW(parse_placement("S(0) on sim:0-3 (2, 2)"), Error);
  Spans rows;
  for (int i = 0; i < 4; ++i) rows.push_back(spans_of({10, 3}, {2, 2}, placement.sbp, i)[0]);
  EXPECT_EQ(rows, (Spans{{0, 3}, {3, 5}, {5, 8}, {8, 10}}));  // halves of halves
  EXPECT_EQ(spans_of({4, 6}, {2, 3}, parse_nd_sbp("S(0),S(1)"), 5), (Spans{{2, 4}, {4, 6}}));
  EXPECT_EQ(spans_of({4, 6}, {2, 3}, parse_nd_sbp("B,P"), 5), (Spans{{0, 4}, {0, 6}}));
  EXPECT_THROW(spans_of({3}, {2, 2}, placement.sbp, 3), Error);
}

TEST(Sbp, ParsesAndPrints) {
  for (const char* text : {"S(0)", "S(12)", "B", "P"}) EXPECT_EQ(parse_sbp(text).str(), text);
  for (const char* text : {"", "S", "S()", "S(-1)", "S(1", "b", "S(1)x"})
    EXPECT_EQ(error_of(text, true),
              "sbp: unknown: '" + std::string(text) + "'; must be S(axis) with an axis >= 0, B or P");
}

TEST(PartOf, IsBalancedAndWhole) {
  for (int64_t size : {0, 1, 7, 8, 100}) {
    for (int n : {1, 2, 3, 4}) {
      int64_t at = 0;
      for (int i = 0; i < n; ++i) {
        const auto [start, stop] = part_of(size, n, i);
        EXPECT_EQ(start, at);
        EXPECT_GE(stop - start, size / n);
        EXPECT_LE(stop - start, size / n + 1);
        at = stop;
      }
      EXPECT_EQ(at, size);
    }
  }
  EXPECT_EQ(part_of(7, 2, 0), std::make_pair(int64_t{0}, int64_t{4}));
}

}  // namespace
}  // namespace sluice
