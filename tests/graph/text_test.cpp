#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/graph.h"

namespace sluice::graph {
namespace {

constexpr const char* kHand = R"(graph "hand \"made\"" {
  %0 = input "x" : float32(4, 3)
  %1 = variable "w" : float32(3, 2)
  %2 = matmul(%0, %1) {transpose_a = false, transpose_b = false} : float32(4, 2) [device "sim:1", stream "host:2", quota 3, module "model.fc", source "dir/train.py:41"]
  %3 = constant "c" : float32()
  %4 = mul(%2, %3) : float32(4, 2)
  %5 = linear(%4, %4, none) {activation = "none"} : float32(4, 4)
  %6 = input "late" : int64(0,)
  output "y" = %5
  output "same" = %5
  update "w" = %1
}
)";

Graph parse_text(const std::string& text) { return parse(text, "test.ir", builtin_ops()); }

TEST(GraphText, RoundTripIsExact) {
  const Graph graph = parse_text(kHand);
  graph.verify();
  EXPECT_EQ(to_text(graph), kHand);
  const Node& node = graph.nodes()[0];
  EXPECT_EQ(node.placement.device, parse_device("sim:1"));
  EXPECT_EQ(node.placement.stream, "host:2");
  EXPECT_EQ(node.quota, 3);
  EXPECT_EQ(node.module, "model.fc");
  EXPECT_EQ(node.source, (SourceLocation{"dir/train.py", 41}));
  EXPECT_EQ(graph.nodes()[2].inputs[2], kNoValue);
}

// As the compiler prints it.
constexpr const char* kPlaced = R"(graph "placed" {
  %0 = input "x" : float32(4, 3) [device "1/cpu:0"]
  %1 = variable "w" : float32(4, 3) [device "sim:0", stream "compute"]
  %2, %3 = twins(%0) : float32(4, 3) strides (1, 4), float32(4, 3) [device "sim:0", stream "copy_in"]
  output "y" = %2 axes(1, 0) [device "1/cpu:0"]
  update "w" = %3
}
)";

TEST(GraphText, KeepsWhereValuesLie) {
  OpRegistry ops = builtin_ops();
  OpDef pair{.name = "twins", .doc = "", .inputs = {"x"}, .num_outputs = 2};
  pair.infer = [](Types in, std::span<const bool>, const Attrs&) { return std::vector{in[0], in[0]}; };
  ops.add(&pair);
  const Graph graph = parse(kPlaced, "test.ir", ops);
  graph.verify();
  EXPECT_EQ(to_text(graph), kPlaced);
  EXPECT_EQ(graph.inputs()[0].placement.device, parse_device("1/cpu:0"));
  EXPECT_EQ(graph.variables()[0].placement.stream, "compute");
  EXPECT_EQ(graph.spec(2).strides, Strides({1, 4}));
  EXPECT_EQ(graph.spec(3).strides, Strides({3, 1}));
}

// Every micro-batch reads what a step copies of a variable; so it is there as often as the variable.
TEST(GraphText, CopiesOfAStepAreThereForAllItsBatches) {
  const auto there = [](const std::string& every) {
    const Graph graph =
        parse_text("graph \"g\" {\n  %0 = variable \"w\" : float32(2)\n  %1 = copy(%0) : float32(2)" + every + "\n}\n");
    return graph.every(1);
  };
  EXPECT_EQ(there(" [every 4, for_all]"), 0);
  EXPECT_EQ(there(" [every 4]"), 4);
  EXPECT_EQ(there(""), 1);
}

TEST(GraphText, RolesAndMicroBatchesAreKept) {
  constexpr const char* kText = R"(graph "g" {
  micro_batches 3
  %0 = input "x" : float32(2,)
  %1 = neg(%0) : float32(2,) [role "backward", module "model.fc"]
  %2 = neg(%1) : float32(2,)
}
)";
  const Graph graph = parse_text(kText);
  EXPECT_EQ(to_text(graph), kText);
  EXPECT_EQ(graph.micro_batches(), 3);
  EXPECT_EQ(graph.nodes()[0].role, Role::kBackward);
  EXPECT_EQ(graph.nodes()[1].role, Role::kForward);
  EXPECT_EQ(graph.provenance(graph.nodes()[0].outputs[0]).module, "model.fc");
  EXPECT_EQ(graph.provenance(graph.inputs()[0].value).module, "");
}

TEST(GraphText, CommentsSpacesAndDefaultsAreRead) {
  const Graph graph =
      parse_text("# a graph\ngraph \"g\" {\n\n %0=input \"x#1\":float32( 2,3 ) # in\n\t%1 = sum(%0) : float32()\n}");
  EXPECT_EQ(graph.inputs()[0].name, "x#1");
  EXPECT_EQ(to_text(graph),
            "graph \"g\" {\n  %0 = input \"x#1\" : float32(2, 3)\n  %1 = sum(%0) {dim = none, keepdim = false} : "
            "float32()\n}\n");
}

TEST(GraphText, NumbersReadBackExactly) {
  for (const char* value : {"0.1", "-0.0", "1e-300", "1.7976931348623157e+308", "inf", "-inf", "nan", "3.0"}) {
    const std::string text = fmt::format(
        "graph \"g\" {{\n  %0 = full() {{shape = [2, 0], value = {}, dtype = bfloat16}} : bfloat16(2, 0)\n}}\n", value);
    EXPECT_EQ(to_text(parse_text(text)), text);
  }
}

// An op with a param of every kind that no built-in op has a use for yet.
const OpDef kAll{.name = "every_kind",
                 .doc = "",
                 .inputs = {},
                 .params = {{"bools", Bools()},
                            {"doubles", Doubles()},
                            {"strings", Strings()},
                            {"dtypes", DTypes()},
                            {"type", TensorType()},
                            {"types", TensorTypes()},
                            {"body", AttrGraph()}},
                 .infer = [](Types, std::span<const bool>, const Attrs&) -> std::vector<TensorType> { return {{}}; }};

std::string all_text(const std::string& attrs) {
  return "graph \"g\" {\n  %0 = every_kind() {" + attrs + "} : float32()\n}\n";
}

Graph parse_all(const std::string& attrs) {
  OpRegistry ops(builtin_ops());
  ops.add(&kAll);
  return parse(all_text(attrs), "test.ir", ops);
}

TEST(GraphText, AttributesMayBeListsTypesAndGraphs) {
  for (const char* attrs :
       {"bools = [true, false], doubles = [1.0, -0.5, inf], strings = [\"a, b\", \"\"], dtypes = [int64, bool], type = "
        "float32(4, 3), types = [float32(), int8(0,)], body = graph(2) {%2 = mul(%0, %1); %3 = gelu(%2) {approximate = "
        "\"tanh\"}; output %3, %2}",
        "bools = [], doubles = [], strings = [], dtypes = [], type = bool(1,), types = [], body = graph(1) {%1 = "
        "while(%0) "
        "{body = graph(1) {%1 = exp(%0); output %1}}; output %1}",
        "bools = [], doubles = [], strings = [], dtypes = [], type = bool(1,), types = [], body = graph(2) {%2, %3 = "
        "f(%0, "
        "none) {a = 1} : float32(2, 3) strides (1, 2), int64(); %4 = g() : bool(0,); output }"}) {
    const Graph graph = parse_all(attrs);
    EXPECT_EQ(to_text(graph), all_text(attrs));
    EXPECT_EQ(graph.nodes()[0].attrs[0].index(), Attr(Bools()).index());
  }
  EXPECT_EQ(std::get<Doubles>(parse_all("doubles = [1, 2]").nodes()[0].attrs[1]), (Doubles{1, 2}));
}

TEST(GraphText, ErrorsOfListsAndGraphsNameTheLine) {
  const auto told = [](const std::string& attrs) -> std::string {
    try {
      parse_all(attrs);
      return "nothing";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(told("bools = [true, 1]"),
            "test.ir:2: list: bool and others; items must be of one kind: int, float, bool, str, dtype or type");
  EXPECT_EQ(told("bools = [[true]]"), "test.ir:2: list: found '[true]]} : float32()'; a list holds no lists");
  EXPECT_EQ(told("strings = [1]"),
            "test.ir:2: every_kind: parameter 'strings': wrong type: [1] (list of int); must be list of str");
  EXPECT_EQ(told("body = graph(1) {%2 = exp(%0); output %2}"),
            "test.ir:2: graph: %2 is out of order; values are numbered as they are given: %1 is next");
  EXPECT_EQ(told("body = graph(1) {%1 = exp(%0) output %1}"),
            "test.ir:2: graph: found 'output %1}} : float32()'; must be ';'");
  EXPECT_EQ(told("body = graph(1) {%1, %2 = exp(%0) : float32(3,); output %1}"),
            "test.ir:2: graph: 2 values and 1 types of exp; must be equally many");
  EXPECT_EQ(told("body = graph(1) {%1 = exp(%0) : float32(3,) strides (1, 2); output %1}"),
            "test.ir:2: result: 2 strides of shape (3,); give one for each axis");
  std::string deep = "graph(1) {%1 = exp(%0); output %1}";
  for (int i = 0; i < 20; ++i) deep = "graph(1) {%1 = f(%0) {b = " + deep + "}; output %1}";
  EXPECT_THAT(told("body = " + deep), testing::HasSubstr("graph: within 17 others; that is too deep"));
}

// Files written when these were text (base/old_attrs.h).
TEST(GraphText, OldAttributesAreRead) {
  const std::string head = "graph \"g\" {\n  %0 = input \"x\" : float32(4, 3)\n  %1 = ";
  for (const auto& [old, now] :
       {std::pair<const char*, const char*>{"fused(%0) {steps = \"exp 0; mul 1 0\"}",
                                            "fused(%0) {body = graph(1) {%1 = exp(%0); %2 = mul(%1, %0); output %2}}"},
        {"to_global(%0) {mesh = \"sim:0-1\", sbp = \"S(1)\"}",
         "to_global(%0) {mesh = [\"sim:0\", \"sim:1\"], sbp = \"split\", axis = 1}"},
        {"host_function(%0) {name = \"f\", outputs = \"float32(4, 3)\"}",
         "host_function(%0) {name = \"f\", outputs = [float32(4, 3)], dims = [], input_dims = [], output_dims = "
         "[]}"}}) {
    EXPECT_EQ(to_text(parse_text(head + old + " : float32(4, 3)\n}\n")), head + now + " : float32(4, 3)\n}\n");
  }
}

constexpr const char* kBatches = R"(graph "batches" {
  %0 = input "x" : float32(2, 3)
  %1 = variable "w" : float32(2, 3)
  %2 = mul(%0, %1) : float32(2, 3)
  %3 = accumulate(%2) {n = 4} : float32(2, 3)
  %4 = sub(%1, %3) : float32(2, 3) [every 4]
  %5 = permute(%1) {dims = [1, 0]} : float32(3, 2)
  %6 = exp(%5) : float32(3, 2) [every 4]
  %7 = pack(%2) {n = 4} : float32(8, 3) [every 4]
  output "y" = %7
  output "z" = %6
  update "w" = %4
}
)";

TEST(GraphText, KeepsHowOftenNodesRun) {
  const Graph graph = parse_text(kBatches);
  graph.verify();
  EXPECT_EQ(to_text(graph), kBatches);
  EXPECT_EQ(graph.micro_batches(), 4);
  const int every[] = {1, 0, 1, 4, 4, 0, 4, 4};
  for (ValueId v = 0; v < 8; ++v) EXPECT_EQ(graph.every(v), every[v]) << v;
}

TEST(GraphVerify, ValuesAreReadAsOftenAsTheyAreThere) {
  const auto error = [](std::string from, const std::string& to) {
    std::string text = kBatches;
    text.replace(text.find(from), from.size(), to);
    try {
      parse_text(text).verify();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(
      error("sub(%1, %3) : float32(2, 3) [every 4]", "sub(%1, %3) : float32(2, 3)"),
      testing::HasSubstr("node 2 (sub): runs once per 1 micro-batches, its input %3 is there once per 4; what a "
                         "micro-batch reads cannot come of all of them"));
  EXPECT_THAT(
      error("sub(%1, %3)", "sub(%1, %2)"),
      testing::HasSubstr("runs once per 4 micro-batches, its input %2 is there once per 1; accumulate() or pack() it"));
  EXPECT_THAT(error("pack(%2) {n = 4} : float32(8, 3)", "pack(%4) {n = 4} : float32(8, 3)"),
              testing::HasSubstr("node 5 (pack): runs once per 4 micro-batches, its input %4 is there once per 4"));
  EXPECT_THAT(error("[every 4]\n  %7", "[every 2]\n  %7"), testing::HasSubstr("node 4 (exp): every 2; must be 1 or 4"));
  EXPECT_THAT(error("output \"y\" = %7", "output \"y\" = %2"),
              testing::HasSubstr("output y: is there in each of 4 micro-batches; a step has one, so pack() it"));
}

// Every op, with every one of its samples.
TEST(GraphText, EveryOpRoundTrips) {
  int graphs = 0;
  for (const OpDef* op : builtin_ops().all()) {
    for (const Sample& sample : op->samples) {
      Graph graph;
      graph.name = op->name;
      Node node;
      node.op = op;
      for (size_t i = 0; i < sample.inputs.size(); ++i) {
        const SampleInput& in = sample.inputs[i];
        node.inputs.push_back(in.absent ? kNoValue : graph.add_input(fmt::format("x{}", i), {in.dtype, in.shape}));
      }
      node.attrs = sample.attrs;
      node.source = {"sample.py", ++graphs};
      const int index = graph.add_node(node);
      for (size_t o = 0; o < graph.nodes()[index].outputs.size(); ++o) {
        graph.add_output(fmt::format("y{}", o), graph.nodes()[index].outputs[o]);
      }
      graph.verify();
      const std::string text = to_text(graph);
      const Graph again = parse_text(text);
      EXPECT_EQ(to_text(again), text);
      EXPECT_EQ(again.nodes()[index].attrs, graph.nodes()[index].attrs) << text;
    }
  }
  EXPECT_GT(graphs, 100);
}

class Malformed : public testing::TestWithParam<std::string> {};

// The first line of each file says which line is at fault and what the message must contain.
TEST_P(Malformed, NamesFileLineAndRule) {
  const std::string path = fmt::format("{}/tests/graph/malformed/{}.ir", SLUICE_SOURCE_DIR, GetParam());
  std::ifstream file(path);
  std::stringstream buffer;
  buffer << file.rdbuf();
  const std::string text = buffer.str(), mark = "# error ";
  ASSERT_TRUE(text.starts_with(mark));
  const std::string expected = text.substr(mark.size(), text.find('\n') - mark.size());
  const size_t colon = expected.find(':');
  const std::string where = fmt::format("{}.ir:{}: ", GetParam(), expected.substr(0, colon));
  try {
    parse(text, GetParam() + ".ir", builtin_ops());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(where)) << error.what();
    EXPECT_NE(std::string(error.what()).find(expected.substr(colon + 2)), std::string::npos)
        << error.what() << "\n  wanted: " << expected;
  }
}

std::vector<std::string> malformed_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_SOURCE_DIR "/tests/graph/malformed")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, Malformed, testing::ValuesIn(malformed_files()),
                         [](const auto& info) { return info.param; });

TEST(GraphText, ThereAreAtLeastThirtyMalformedFiles) { EXPECT_GE(malformed_files().size(), 30u); }

}  // namespace
}  // namespace sluice::graph
