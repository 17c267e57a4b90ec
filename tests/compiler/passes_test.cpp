// One golden text per pass: tests/golden/<pass>.txt holds cases, each a graph, the number of rewrites and the graph
// afterwards. `compiler_tests --update` (or SLUICE_UPDATE_GOLDEN=1) rewrites what follows the input graphs.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "compiler/fake_target.h"
#include "compiler/pass.h"

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

class Golden : public testing::TestWithParam<const char*> {
 protected:
  // Runs the pass named by the parameter and returns the text of the case with its result.
  std::string run(const std::string& input, const std::string& comment) {
    const Pass* pass = nullptr;
    for (const Pass& p : graph_passes()) {
      if (std::string_view(p.name) == GetParam() && !pass) pass = &p;
    }
    graph::Graph graph = graph::parse(input, GetParam(), builtin_ops());
    FakeTarget target;
    if (std::string_view(GetParam()) == "decompose") target.missing = {"linear", "softmax"};
    target.fuses = std::string_view(GetParam()) == "fuse_elementwise";
    const CompileOptions options;
    const std::vector<float> c{1, 2, 3};
    const ConstantLookup lookup = [&](const std::string& name) { return name == "c" ? c.data() : nullptr; };
    const ConstantEvaluator evaluator = evaluate;
    std::map<std::string, std::vector<std::byte>> constants;
    Partition partition;
    PassContext context{target, options, lookup, evaluator, constants, partition};
    const int rewrites = pass->run(graph, context);
    graph.verify();
    std::string text = comment + input + fmt::format("==> {} rewrites\n", rewrites) + graph::to_text(graph);
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
                         testing::Values("dead_code", "simplify", "common_subexpressions", "fuse_activation",
                                         "fuse_elementwise", "decompose", "fold_constants", "partition"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PassList, EveryPassHasAGoldenFile) {
  for (const std::string& name : pass_names()) {
    EXPECT_TRUE(std::ifstream(fmt::format("{}/tests/golden/{}.txt", SLUICE_SOURCE_DIR, name)).good()) << name;
  }
}

}  // namespace
}  // namespace sluice::compiler
