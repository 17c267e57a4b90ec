// dtypes, devices, attributes and statuses.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/attr.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/old_attrs.h"
#include "base/trace.h"

namespace sluice {
namespace {

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto d = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(d)), d);
  }
  EXPECT_THROW(parse_dtype("float"), Error);
}

TEST(DType, PromotesLikeTorch) {
  EXPECT_EQ(promote(DType::kInt64, DType::kFloat32), DType::kFloat32);
  EXPECT_EQ(promote(DType::kUInt8, DType::kInt8), DType::kInt16);
  EXPECT_EQ(promote(DType::kFloat16, DType::kBFloat16), DType::kFloat32);
  EXPECT_EQ(promote(DType::kBool, DType::kUInt8), DType::kUInt8);
}

TEST(DType, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.00390625f).bits, 0x3f80);  // a tie goes to the even neighbour
  EXPECT_EQ(to_bfloat16(1.01171875f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DType, Float16IsIeeeHalf) {
  EXPECT_EQ(to_float16(1.0f).bits, 0x3c00);
  EXPECT_EQ(to_float(Float16{0x7bff}), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(to_float16(1e6f))));
}

TEST(Device, ParsesAndPrints) {
  EXPECT_EQ(parse_device("cpu").str(), "cpu:0");
  EXPECT_EQ(parse_device("1/sim:2").str(), "1/sim:2");
  EXPECT_EQ(parse_device("npu_2:3").str(), "npu_2:3");
  for (const char* text : {"GPU", "", ":0", "2d", "_x", "a-b", "g\xc3\xa9", "seventeen_letters"})
    EXPECT_THROW(parse_device(text), Error) << text;
  EXPECT_THROW(parse_device("cpu:"), Error);
  EXPECT_THROW(parse_device("cpu:-1"), Error);
}

TEST(Device, KindsAreNamesInTheirOrder) {
  const std::vector<std::string> names = {"a",   "a0",   "aa", "abcdefgh", "abcdefghi", "abcdefghijklmnop",
                                          "cpu", "cuda", "sim"};
  for (size_t i = 0; i < names.size(); ++i) {
    const DeviceKind kind = DeviceKind::named(names[i]);
    EXPECT_EQ(kind.str(), names[i]);
    for (size_t j = 0; j < names.size(); ++j) {
      const DeviceKind other = DeviceKind::named(names[j]);
      EXPECT_EQ(kind == other, i == j);
      EXPECT_EQ(kind < other, i < j) << names[i] << " " << names[j];
      EXPECT_EQ(kind.hash() == other.hash(), i == j);
    }
  }
  EXPECT_EQ(DeviceKind::named("cuda"), DeviceKind::kCuda);
  static_assert(sizeof(DeviceKind) == 16 && DeviceKind::kCpu < DeviceKind::kSim);
}

TEST(Attr, PrintsEveryKind) {
  EXPECT_EQ(attr_str({}), "none");
  EXPECT_EQ(attr_str(true), "true");
  EXPECT_EQ(attr_str(int64_t{3}), "3");
  EXPECT_EQ(attr_str(3.0), "3.0");
  EXPECT_EQ(attr_str(0.1), "0.1");
  EXPECT_EQ(attr_str(std::string("a\"b")), "\"a\\\"b\"");
  EXPECT_EQ(attr_str(Ints{1, 2}), "[1, 2]");
  EXPECT_EQ(attr_str(DType::kBFloat16), "bfloat16");
}

TEST(Status, CarriesErrorsByValue) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_TRUE(ok.with_context("x").ok());
  Status failed;
  try {
    fail(ErrorKind::kIndex, "op: index out of range: {}; must be < {}", 7, 3);
  } catch (...) {
    failed = Status::from_current_exception();
  }
  EXPECT_EQ(failed.kind(), ErrorKind::kIndex);
  EXPECT_EQ(failed.with_context("train.py:4").message(), "op: index out of range: 7; must be < 3  (train.py:4)");
  EXPECT_THROW(failed.throw_if_error(), Error);
}

TEST(Trace, WritesOneLanePerStream) {
  const std::string json =
      chrome_trace_json({.events = {{.actor = 0, .step = 2, .begin_ns = 1000, .end_ns = 3000}}, .lost = 7},
                        {{"cpu:0/compute0"}, {"fwd \"x\""}, {}, {}});
  EXPECT_NE(json.find("\"name\":\"cpu:0/compute0\""), std::string::npos);
  EXPECT_NE(json.find("\"name\":\"fwd \\\"x\\\"\""), std::string::npos);
  EXPECT_NE(json.find("\"tid\":1,\"ts\":1.0002,\"dur\":2.0002"), std::string::npos);
  EXPECT_NE(json.find("\"lostEvents\":7"), std::string::npos);
}

TEST(Attr, PrintsListsTypesAndGraphs) {
  EXPECT_EQ(attr_str(Bools{true, false}), "[true, false]");
  EXPECT_EQ(attr_str(Doubles{1, 0.5}), "[1.0, 0.5]");
  EXPECT_EQ(attr_str(Strings{"a", "b\n"}), "[\"a\", \"b\\n\"]");
  EXPECT_EQ(attr_str(DTypes{DType::kInt64}), "[int64]");
  EXPECT_EQ(attr_str(TensorType{DType::kFloat32, {4, 3}}), "float32(4, 3)");
  EXPECT_EQ(attr_str(TensorTypes{{DType::kFloat32, {4, 3}}, {DType::kInt64, {8}}}), "[float32(4, 3), int64(8,)]");
  EXPECT_EQ(attr_str(AttrGraph{2, {{"mul", {}, {0, 1}}, {"gelu", {{"approximate", std::string("tanh")}}, {2}}}, {3}}),
            "graph(2) {%2 = mul(%0, %1); %3 = gelu(%2) {approximate = \"tanh\"}; output %3}");
  const TensorSpec rows = TensorSpec::contiguous({DType::kFloat32, {2, 3}}), columns{DType::kFloat32, {2, 3}, {1, 2}};
  EXPECT_EQ(attr_str(AttrGraph{1, {{"f", {}, {0, kNoOperand}, {rows, columns}}}, {2}}),
            "graph(1) {%1, %2 = f(%0, none) : float32(2, 3), float32(2, 3) strides (1, 2); output %2}");
}

TEST(AttrGraph, ErrorsNameWhatIsWrong) {
  const auto error = [](const AttrGraph& graph) {
    try {
      check_attr_graph(graph, 2, 1);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error({2, {{"mul", {}, {0, 1}}, {"exp", {}, {2}}}, {3}}), "");
  EXPECT_EQ(error({3, {{"exp", {}, {0}}}, {3}}), "graph: inputs: 3; it is called with 2");
  EXPECT_EQ(error({2, {{"exp", {}, {0}}}, {}}), "graph: outputs: 0; must be 1");
  EXPECT_EQ(error({2, {}, {0}}), "graph: calls: none; must have some");
  EXPECT_EQ(error({2, {{"exp", {}, {}}}, {2}}), "graph: %2 = exp(); must be an op of some operands");
  EXPECT_EQ(error({2, {{"exp", {}, {0}}, {"mul", {}, {2, 3}}}, {3}}),
            "graph: %3 = mul uses %3; must be an input or what a call before it gives, below %3");
  EXPECT_EQ(error({2, {{"exp", {}, {-1}}}, {2}}),
            "graph: %2 = exp uses %-1; must be an input or what a call before it gives, below %2");
  EXPECT_EQ(error({2, {{"exp", {}, {0}}}, {3}}),
            "graph: output uses %3; must be an input or what a call before it gives, below %3");
}

TEST(AttrGraph, SaysTheTypesOfAllCallsOrOfNone) {
  const TensorSpec one = TensorSpec::contiguous({DType::kFloat32, {2}});
  const auto error = [](const AttrGraph& graph, bool typed) {
    try {
      check_attr_graph(graph, 1, 1, typed);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error({1, {}, {0}}, true), "");
  EXPECT_EQ(error({1, {{"f", {}, {kNoOperand, 0}, {one, one}}, {"g", {}, {}, {one}}}, {3}}, true), "");
  EXPECT_EQ(error({1, {{"f", {}, {0}, {one, one}}}, {3}}, true),
            "graph: output uses %3; must be an input or what a call before it gives, below %3");
  EXPECT_EQ(error({1, {{"f", {}, {0}}}, {1}}, true), "graph: %1 = f: types of results: 0; must be said");
  EXPECT_EQ(error({1, {{"f", {}, {0}, {one}}}, {1}}, false), "graph: %1 = f: types of results: 1; must be none");
}

NamedAttrs read_old(const char* op, NamedAttrs attrs) {
  read_old_attrs(op, 2, attrs);
  return attrs;
}

TEST(OldAttrs, AreReadAsTheFormsOfToday) {
  EXPECT_EQ(read_old("fused", {{"steps", std::string("mul 0 1; gelu:tanh 2; cast:float16 3; where 1 4 2")}}),
            (NamedAttrs{{"body", AttrGraph{2,
                                           {{"mul", {}, {0, 1}},
                                            {"gelu", {{"approximate", std::string("tanh")}}, {2}},
                                            {"cast", {{"dtype", DType::kFloat16}}, {3}},
                                            {"where", {}, {1, 4, 2}}},
                                           {5}}}}));
  EXPECT_EQ(
      read_old("host_function",
               {{"name", std::string("f")}, {"outputs", std::string("float32(4, 3), int64(8,), bool()")}}),
      (NamedAttrs{{"name", std::string("f")},
                  {"outputs", TensorTypes{{DType::kFloat32, {4, 3}}, {DType::kInt64, {8}}, {DType::kBool, {}}}}}));
  EXPECT_EQ(read_old("to_global", {{"mesh", std::string("sim:0-1")}, {"sbp", std::string("S(1)")}}),
            (NamedAttrs{{"mesh", Strings{"sim:0", "sim:1"}}, {"sbp", std::string("split")}, {"axis", int64_t{1}}}));
}

TEST(OldAttrs, LeaveTheFormsOfTodayAlone) {
  const NamedAttrs attrs[] = {{{"body", AttrGraph{1, {{"exp", {}, {0}}}, {1}}}},
                              {{"name", std::string("f")}, {"outputs", TensorTypes{{DType::kBool, {}}}}},
                              {{"mesh", Strings{"sim:0"}}, {"sbp", std::string("broadcast")}, {"axis", int64_t{0}}},
                              {{"steps", std::string("mul 0 1")}}};
  const char* ops[] = {"fused", "host_function", "to_global", "another"};
  for (size_t i = 0; i < std::size(ops); ++i) EXPECT_EQ(read_old(ops[i], attrs[i]), attrs[i]) << ops[i];
}

TEST(OldAttrs, ErrorsNameWhatIsWrong) {
  const auto error = [](const char* op, NamedAttrs attrs) {
    try {
      read_old_attrs(op, 2, attrs);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const auto steps = [&](const char* text) { return error("fused", {{"steps", std::string(text)}}); };
  EXPECT_EQ(steps(""), "fused: steps: \"\"; must have a step");
  EXPECT_EQ(steps("exp"), "fused: steps: \"exp\"; must be \"op operand...\"");
  EXPECT_EQ(steps("exp 0; mul 2 3"),
            "fused: steps: '3' in \"mul 2 3\"; must be the number of an input or of a step before, below 3");
  EXPECT_EQ(steps("exp 1x"),
            "fused: steps: '1x' in \"exp 1x\"; must be the number of an input or of a step before, below 2");
  EXPECT_EQ(error("host_function", {{"name", std::string("f")}, {"outputs", std::string("float32(4")}}),
            "host_function: outputs: cannot read 'float32(4' at 9; must be a list like 'float32(4, 3), int64(8,)'");
}

}  // namespace
}  // namespace sluice
