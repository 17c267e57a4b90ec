// One golden text per pass, lowering's included: tests/golden/<pass>.txt holds cases, each a graph, the number of
// rewrites and the graph afterwards. `compiler_tests --update` (or SLUICE_UPDATE_GOLDEN=1) rewrites what follows the
// input graphs.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "compiler/fake_backend.h"
#include "compiler/fake_target.h"
#include "compiler/lowering/lowering.h"

namespace sluice::compiler {
namespace {

bool update_golden() {
  const char* variable = std::getenv("SLUICE_UPDATE_GOLDEN");
  if (variable && std::string_view(variable) == "1") return true;
  for (const std::string& arg : testing::internal::GetArgvs()) {
    if (arg == "--update") return true;
  }
  return false;
}

std::vector<std::byte> floats(std::vector<float> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Knows full, add and mul on float32 with broadcasting from one element.
std::vector<std::vector<std::byte>> evaluate(const OpDef& op, const Attrs& attrs, Types types,
                                             std::span<const void* const> inputs) {
  const std::string name = op.name;
  if (name == "full") {
    const int64_t n = numel(Shape(attr<Ints>(attrs, 0)));
    return {floats(std::vector<float>(n, static_cast<float>(attr<double>(attrs, 1))))};
  }
  const int64_t n0 = numel(types[0].shape), n1 = numel(types[1].shape), n = std::max(n0, n1);
  const auto *a = static_cast<const float*>(inputs[0]), *b = static_cast<const float*>(inputs[1]);
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[n0 == 1 ? 0 : i], y = b[n1 == 1 ? 0 : i];
    out.push_back(name == "add" ? x + y : x * y);
  }
  return {floats(out)};
}

// x * sigmoid(x) is silu(x), and x + (1, 2, 3) is x - (-1, -2, -3).
std::vector<Pattern> patterns_of_test() {
  const auto parse = [](const std::string& text) { return graph::parse(text, "pattern", builtin_ops()); };
  const std::string x = "graph \"p\" {\n  %0 = input \"x\" : float32(2, 2)\n";
  const std::string by_hand =
      "  %1 = sigmoid(%0) : float32(2, 2)\n  %2 = mul(%0, %1) : float32(2, 2)\n  output \"y\" = %2\n}\n";
  const std::string at_once = "  %1 = silu(%0) : float32(2, 2)\n  output \"y\" = %1\n}\n";
  const std::string plus =
      "  %1 = constant \"k\" : float32(3,)\n  %2 = add(%0, %1) : float32(2, 3)\n  output \"y\" = %2\n}\n";
  const std::string wide = "graph \"p\" {\n  %0 = input \"x\" : float32(2, 3)\n";
  const std::string minus =
      "  %1 = constant \"k\" : float32(3,)\n  %2 = sub(%0, %1) : float32(2, 3)\n  output \"y\" = %2\n}\n";
  return {
      {"silu", parse(x + by_hand), parse(x + at_once)},
      {"minus", parse(wide + plus), parse(wide + minus), {{"k", floats({1, 2, 3})}}, {{"k", floats({-1, -2, -3})}}}};
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  // Runs the pass named by the parameter and returns the text of the case with its result.
  std::string run(const std::string& input, const std::string& comment) {
    graph::Graph graph = graph::parse(input, GetParam(), lowering_ops());
    FakeTarget target;
    if (std::string_view(GetParam()) == "decompose") target.missing = {"linear", "softmax"};
    if (std::string_view(GetParam()) == "fuse_convolution" || std::string_view(GetParam()) == "fuse_batch_norm" ||
        std::string_view(GetParam()) == "fuse_updates" || std::string_view(GetParam()) == "fuse_add" ||
        std::string_view(GetParam()) == "fold_norms")
      target.missing.clear();
    target.fuses = std::string_view(GetParam()) == "fuse_elementwise" || std::string_view(GetParam()) == "fuse_rows";
    if (target.fuses) target.missing = {};
    target.pads = std::string_view(GetParam()) == "pad_products";
    CompileOptions options;
    if (std::string_view(GetParam()) == "assign_devices") {
      options.devices = {parse_device("sim:0"), parse_device("cpu:0")};
      target.missing = {"softmax"};
      target.missing_on_sim.insert("exp");
    }
    if (std::string_view(GetParam()) == "offload") {
      add_fake_backend();
      taken_by_fake_backend() = {"relu", "mul"};
      options.backend = "fake";
    }
    if (std::string_view(GetParam()) == "patterns") options.patterns = patterns_of_test();
    if (std::string_view(GetParam()) == "spill") options.spill_bytes = 16384;
    if (comment.find("options: all activations") != std::string::npos) options.activations = "all";
    for (const char* level : {"slight", "moderate", "heavy"})
      if (comment.find(fmt::format("options: {} memory", level)) != std::string::npos) options.auto_memory = level;
    for (const char* order : {"program", "speed", "overlap", "short_last"})
      if (comment.find(fmt::format("options: {} order", order)) != std::string::npos) options.order = order;
    if (comment.find("options: all updates") != std::string::npos) options.updates = "all";
    if (comment.find("options: scaled updates") != std::string::npos) options.scaled_updates = true;
    const std::vector<float> c{1, 2, 3};
    const int32_t zero = 0;
    const ConstantLookup lookup = [&](const std::string& name) {
      return name == "c" || name == "k" ? static_cast<const void*>(c.data()) : name == "zero" ? &zero : nullptr;
    };
    const ConstantEvaluator evaluator = evaluate;
    std::map<std::string, std::vector<std::byte>> constants;
    Partition partition;
    PassContext context{target, options, lookup, evaluator, constants, partition};
    const int rewrites = run_pass(graph, context);
    graph.verify();
    const std::string result = graph::to_text(graph);
    EXPECT_EQ(graph::to_text(graph::parse(result, GetParam(), lowering_ops())), result);
    std::string text = comment + input + fmt::format("==> {} rewrites\n", rewrites) + result;
    for (const auto& [name, bytes] : constants) {
      text += fmt::format("# {} =", name);
      for (size_t i = 0; i < bytes.size(); i += 4) {
        float v;
        std::memcpy(&v, &bytes[i], 4);
        text += fmt::format(" {}", v);
      }
      text += "\n";
    }
    return text;
  }

 private:
  static int run_pass(graph::Graph& graph, PassContext& context) {
    for (const Pass& pass : graph_passes())
      if (std::string_view(pass.name) == GetParam()) return pass.run(graph, context);
    for (const LoweringPass& pass : lowering_passes()) {
      if (std::string_view(pass.name) != GetParam()) continue;
      const int rewrites = pass.run(graph, context);
      if (pass.verify) pass.verify(graph, context);
      return rewrites;
    }
    return -1;
  }
};

TEST_P(Golden, TextIsAsRecorded) {
  const std::string path = fmt::format("{}/tests/golden/{}.txt", SLUICE_SOURCE_DIR, GetParam());
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::stringstream buffer;
  buffer << file.rdbuf();
  const std::string recorded = buffer.str(), separator = "----\n";
  std::string made;
  for (size_t begin = 0; begin < recorded.size();) {
    const size_t end = std::min(recorded.find(separator, begin), recorded.size());
    const std::string item = recorded.substr(begin, end - begin);
    const size_t graph_at = item.starts_with("graph") ? 0 : item.find("\ngraph") + 1;
    const std::string input = item.substr(graph_at, std::min(item.find("==> "), item.size()) - graph_at);
    made += (begin ? separator : "") + run(input, item.substr(0, graph_at));
    begin = end + separator.size();
  }
  if (update_golden()) {
    std::ofstream(path) << made;
    return;
  }
  EXPECT_EQ(made, recorded) << "run compiler_tests --update and look at the difference";
}

INSTANTIATE_TEST_SUITE_P(Passes, Golden,
                         testing::Values("dead_code", "simplify", "common_subexpressions", "assign_devices",
                                         "choose_regions", "recompute", "fuse_activation", "fuse_add",
                                         "fuse_batch_norm", "fuse_bias", "fuse_convolution", "fuse_elementwise",
                                         "fuse_pad", "fuse_quantized", "fuse_rows", "fuse_updates", "loops", "offload",
                                         "pad_products", "patterns", "decompose", "fold_constants", "fold_norms",
                                         "partition", "placement", "schedule", "transfers", "layout", "snapshots",
                                         "spill"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PassList, EveryPassHasAGoldenFile) {
  for (const std::string& name : pass_names()) {
    EXPECT_TRUE(std::ifstream(fmt::format("{}/tests/golden/{}.txt", SLUICE_SOURCE_DIR, name)).good()) << name;
  }
  for (const LoweringPass& pass : lowering_passes()) {
    EXPECT_TRUE(std::ifstream(fmt::format("{}/tests/golden/{}.txt", SLUICE_SOURCE_DIR, pass.name)).good()) << pass.name;
  }
}

template <class F>
std::string message_of(F run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The error of a verifier for a graph that lacks what its pass establishes.
std::string refused(const char* pass_name, const std::string& body) {
  const graph::Graph graph = graph::parse("graph \"g\" {\n" + body + "}\n", "g.ir", lowering_ops());
  const FakeTarget target;
  const CompileOptions options;
  const ConstantLookup lookup;
  const ConstantEvaluator evaluator;
  std::map<std::string, std::vector<std::byte>> constants;
  Partition partition;
  const PassContext context{target, options, lookup, evaluator, constants, partition};
  for (const LoweringPass& pass : lowering_passes())
    if (std::string_view(pass.name) == pass_name) return message_of([&] { pass.verify(graph, context); });
  return "no such pass";
}

TEST(LoweringVerifiers, PlacementWantsADeviceAndAStreamOfEveryNode) {
  const auto placed = [](const std::string& where) {
    return refused("placement",
                   "  %0 = input \"x\" : float32(4) [device \"cpu:0\"]\n  %1 = exp(%0) : float32(4) " + where + "\n");
  };
  EXPECT_EQ(placed("[device \"sim:0\", stream \"compute:1\"]"), "no error");
  EXPECT_EQ(placed(""), "op exp: stream \"\" of device none: no such stream; must be placed by the compiler");
  EXPECT_EQ(placed("[device \"cpu:0\", stream \"fast\"]"),
            "op exp: stream \"fast\" of device cpu:0: no such stream; must be placed by the compiler");
  EXPECT_EQ(placed("[device \"cuda:7\", stream \"compute\"]"),
            "op exp: device cuda:7: not there; the target has cpu:0, sim:0, sim:1, cuda:0");
  EXPECT_EQ(refused("placement", "  %0 = input \"x\" : float32(4) [device \"sim:0\"]\n"),
            "input x: on device sim:0; must lie in the memory of a host");
}

TEST(LoweringVerifiers, TransfersWantOperandsWhereKernelsRead) {
  const auto read = [](const std::string& where) {
    return refused("transfers",
                   "  %0 = input \"x\" : float32(4) [device \"cpu:0\"]\n"
                   "  %1 = copy(%0) : float32(4) [device \"sim:0\", stream \"copy_in\"]\n"
                   "  %2 = exp(%1) : float32(4) " +
                       where + "\n");
  };
  EXPECT_EQ(read("[device \"sim:0\", stream \"compute\"]"), "no error");
  EXPECT_EQ(read("[device \"sim:1\", stream \"compute\"]"), "op exp: reads %1 from sim:1; it lies in sim:0");
  EXPECT_EQ(refused("transfers",
                    "  %0 = full() {shape = [4], value = 1.0, dtype = float32} : float32(4) [device "
                    "\"sim:0\", stream \"compute\"]\n  output \"y\" = %0 [device \"cpu:0\"]\n"),
            "output y: lies in sim:0; must lie in host");
}

TEST(LoweringVerifiers, LayoutWantsWhatKernelsWant) {
  const std::string x = "  %0 = input \"x\" : float32(4, 2) [device \"cpu:0\"]\n"
                        "  %1 = permute(%0) {dims = [1, 0]} : float32(2, 4) [device \"cpu:0\", stream \"compute\"]\n",
                    on = " [device \"cpu:0\", stream \"compute\"]\n";
  EXPECT_EQ(refused("layout", x + "  %2 = exp(%1) : float32(2, 4) strides (1, 2)" + on), "no error");
  EXPECT_EQ(refused("layout", x + "  %2 = softmax(%1) {dim = 1} : float32(2, 4)" + on),
            "op softmax: input 0 has strides (1, 2) of (2, 4); its kernel wants another order");
  EXPECT_EQ(refused("layout", x + "  %2 = reshape(%1) {shape = [8]} : float32(8)" + on),
            "op reshape: %1 with strides (1, 2) cannot be viewed so; it must be reordered before");
  EXPECT_EQ(refused("layout", x + "  output \"y\" = %1 [device \"cpu:0\"]\n"),
            "output y: value 0 has strides (1, 2) of (2, 4); its kernel wants another order");
}

TEST(LoweringVerifiers, SnapshotsWantNothingOverwrittenThatIsRead) {
  const auto step = [](const std::string& reads, const std::string& rest) {
    return refused("snapshots",
                   "  %0 = variable \"w\" : float32(4) [device \"cpu:0\", stream \"compute\"]\n"
                   "  %1 = neg(%0) : float32(4) [device \"cpu:0\", stream \"compute\"]\n"
                   "  %2 = exp(" +
                       reads + ") : float32(4) [device \"cpu:0\", stream \"host\"]\n" + rest);
  };
  const std::string update = "  update \"w\" = %1\n";
  EXPECT_EQ(step("%0", "  update \"w\" = %0\n"), "update of w: %0; a kernel beside the variable must write it");
  EXPECT_EQ(step("%0", "  update \"w\" = %2\n"), "update of w: %2; a kernel beside the variable must write it");
  EXPECT_EQ(step("%0", update),
            "op exp: reads %0, the old content of a variable that is written before; it must read a copy");
  EXPECT_EQ(step("%1", update),
            "op exp: reads %1, which the next step overwrites, on another stream; it must read a "
            "copy");
  EXPECT_EQ(step("%1", "  output \"y\" = %0 [device \"cpu:0\"]\n"),
            "output y: %0 lies in other memory; it must be all of what a kernel makes");
}

}  // namespace
}  // namespace sluice::compiler
