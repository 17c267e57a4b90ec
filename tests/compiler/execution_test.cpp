// Plans compute what their graphs say, bitwise, whatever the options, the placement and the order of firings.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/compiler.h"
#include "compiler/interpreter.h"
#include "compiler/nets.h"
#include "graph/ops/creation.h"
#include "graph/ops/indexing.h"
#include "graph/ops/random.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/sim/sim_kernels.h"
#include "kernels/target.h"

namespace sluice {
namespace {

const KernelTable& table() {
  static const KernelTable kTable = [] {
    KernelTable t;
    add_cpu_kernels(t);
    add_sim_kernels(t);
    return t;
  }();
  return kTable;
}

plan::DeviceDesc desc(const char* device, bool host) { return {parse_device(device), host, !host, 1, 0}; }

const KernelTarget& target() {
  static const KernelTarget kTarget(table(), {desc("cpu:0", true), desc("sim:0", false), desc("sim:1", false)});
  return kTarget;
}

// Floats between -1 and 1, or small whole numbers, which add up exactly in any order.
enum class Numbers { kFractions, kWhole };

Bytes random_bytes(const TensorType& type, std::mt19937& random, Numbers numbers = Numbers::kFractions) {
  Bytes bytes(std::max<uint64_t>(bytes_of(type), 1));
  const int64_t n = numel(type.shape);
  for (int64_t i = 0; i < n; ++i) {
    const int small = static_cast<int>(random() % 10);
    const float fraction = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000.0f;
    const float value = numbers == Numbers::kWhole ? std::round(10 * fraction) : fraction;
    if (type.dtype == DType::kFloat32)
      std::memcpy(&bytes[i * 4], &value, 4);
    else if (type.dtype == DType::kInt64)
      bytes[i * 8] = static_cast<std::byte>(small);
    else
      ADD_FAILURE() << "no random " << type.str();
  }
  return bytes;
}

std::vector<std::vector<std::byte>> evaluate(const OpDef& op, const Attrs& attrs, Types types,
                                             std::span<const void* const> inputs) {
  graph::Graph graph;
  graph::Node node;
  node.op = &op;
  node.attrs = attrs;
  Tensors in, none;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!inputs[i]) {
      node.inputs.push_back(graph::kNoValue);
      continue;
    }
    const std::string name = std::to_string(i);
    node.inputs.push_back(graph.add_input(name, types[i]));
    const auto* data = static_cast<const std::byte*>(inputs[i]);
    in[name].assign(data, data + bytes_of(types[i]));
  }
  const int index = graph.add_node(node);
  const graph::ValueIds results = graph.nodes()[index].outputs;
  for (graph::ValueId id : results) graph.add_output(std::to_string(id), id);
  const Tensors out = run_graph(graph, table(), in, none);
  std::vector<std::vector<std::byte>> bytes;
  for (graph::ValueId id : results) {
    bytes.push_back(out.at(std::to_string(id)));
    bytes.back().resize(bytes_of(graph.type(id)));
  }
  return bytes;
}

// Compiles and compares four steps with the graph itself, under several orders of firings.
void expect_equal(const graph::Graph& graph, const CompileOptions& options,
                  const plan::Target& target = sluice::target(), Numbers numbers = Numbers::kFractions) {
  std::mt19937 random(7);
  Tensors start;
  for (const graph::Variable& v : graph.variables()) start[v.name] = random_bytes(graph.type(v.value), random, numbers);
  std::vector<Tensors> steps(4);
  for (Tensors& step : steps) {
    for (const graph::Input& input : graph.inputs())
      step[input.name] = random_bytes(graph.type(input.value), random, numbers);
  }
  std::vector<Tensors> wanted;
  Tensors wanted_variables = start;
  for (const Tensors& step : steps) wanted.push_back(run_graph(graph, table(), step, wanted_variables));

  const ConstantLookup lookup = [&](const std::string& name) { return start.at(name).data(); };
  const CompileResult result = compile(graph, target, options, lookup, evaluate);
  for (uint32_t seed = 0; seed < 5; ++seed) {
    Tensors variables = start;
    for (const auto& [name, bytes] : result.constants) variables[name] = bytes;
    for (auto& [name, bytes] : variables) bytes.resize(std::max<size_t>(bytes.size(), 1));
    const std::vector<Tensors> got = PlanInterpreter(result.plan, table(), variables).run(steps, seed);
    for (size_t s = 0; s < steps.size(); ++s) {
      for (const auto& [name, bytes] : wanted[s]) {
        ASSERT_TRUE(got[s].contains(name)) << "step " << s << " gave no " << name;
        EXPECT_TRUE(got[s].at(name) == bytes) << "step " << s << " output " << name << " seed " << seed;
      }
    }
    for (const graph::Variable& v : graph.variables()) {
      EXPECT_TRUE(variables[v.name] == wanted_variables[v.name]) << "variable " << v.name << " seed " << seed;
    }
  }
}

std::vector<std::pair<std::string, CompileOptions>> variants() {
  std::vector<std::pair<std::string, CompileOptions>> list;
  const auto add = [&](const char* name, auto change) {
    CompileOptions options;
    options.cores = 1;
    change(options);
    list.emplace_back(name, options);
  };
  add("plain", [](CompileOptions&) {});
  add("one_step", [](CompileOptions& o) { o.outputs_buffer_size = 1; });
  add("op", [](CompileOptions& o) { o.granularity = Granularity::kOp; });
  add("no_reuse", [](CompileOptions& o) { o.reuse_memory = false; });
  add("no_in_place", [](CompileOptions& o) { o.in_place = false; });
  add("no_passes", [](CompileOptions& o) {
    o.disabled_passes = pass_names();
    std::erase(o.disabled_passes, "decompose");
  });
  add("sim", [](CompileOptions& o) { o.device = parse_device("sim:0"); });
  add("sim_op", [](CompileOptions& o) {
    o.device = parse_device("sim:0");
    o.granularity = Granularity::kOp;
    o.outputs_buffer_size = 3;
  });
  return list;
}

class Execution : public testing::TestWithParam<std::pair<std::string, CompileOptions>> {
 protected:
  const CompileOptions& options() const { return GetParam().second; }
};

INSTANTIATE_TEST_SUITE_P(Options, Execution, testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.first; });

// Most of what its training keeps are values between its layers.
graph::Graph deep_net(int layers) {
  NetBuilder net("deep");
  Value x = net.input("x", {32, 64});
  for (int i = 0; i < layers; ++i)
    x = ops::tanh(ops::add(ops::mul(x, net.parameter("w" + std::to_string(i), {64})), ops::permute(x, {0, 1})));
  const Value loss = ops::mean(x);
  net.output("loss", loss);
  net.train(loss);
  return net.graph;
}

TEST(Spill, GivesTheBitsOfTheGraph) {  // STP-07
  const ConstantEvaluator evaluator = evaluate;
  for (const graph::Graph& graph : {deep_net(16), conv_net(60, true), mlp(true, 256, 64)}) {
    for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
      CompileOptions options;
      options.cores = 1;
      options.granularity = granularity;
      options.spill_bytes = uint64_t{1} << 40;  // whatever can go goes
      const plan::Plan plan = compile(graph, target(), options, {}, evaluator).plan;
      EXPECT_GT(plan::spilled(plan).values, 0) << graph.name;
      expect_equal(graph, options);
    }
  }
}

TEST_P(Execution, TrainsAPerceptron) { expect_equal(mlp(true, 4, 16), options()); }

TEST_P(Execution, TrainsConvolutions) { expect_equal(conv_net(60, true), options()); }

TEST_P(Execution, TrainsAttention) { expect_equal(transformer(200, true), options()); }

// Preprocessing on two host streams with a generator that both it and the net use, copies between three devices, big
// variables read on one stream and written on another, and variables that exchange their contents.
TEST_P(Execution, MixedPlacement) {
  NetBuilder net("mixed");
  const Value x = net.input("x", {4, 2000});
  const Value state = net.variable("state", {2}, DType::kInt64);
  const Value table = net.variable("table", {4, 2000}), a = net.variable("a", {3, 5}), b = net.variable("b", {5, 3});
  const auto at = [&](const char* device, const char* stream) {
    net.builder.context.placement = {};
    if (device) net.builder.context.placement.device = parse_device(device);
    net.builder.context.placement.stream = stream;
  };
  at(nullptr, "host");
  const Value noisy = ops::add(ops::dropout(state, x, 0.5, 1), table);
  at(nullptr, "host:1");
  const Value scaled = ops::mul(noisy, 0.5);
  at("sim:0", "");
  const Value h = ops::exp(ops::add(noisy, scaled));
  at("sim:1", "");
  const Value g = ops::relu(ops::sub(h, table));
  at(nullptr, "");
  const Value dropped = ops::dropout(state, ops::add(g, h), 0.5, 2);
  at(nullptr, "host");
  const Value back = ops::tanh(dropped);
  at(nullptr, "");
  net.update(table, ops::mul(ops::add(back, x), 0.25));
  net.update(state, ops::add(state, ops::full({2}, 1, DType::kInt64)));
  net.update(a, ops::permute(b, {1, 0}));
  net.update(b, ops::permute(a, {1, 0}));
  net.output("y", back);
  net.output("y_flat", ops::reshape(back, {8000}));
  net.output("x", x);
  net.output("old_table", table);
  net.output("corner", ops::slice(h, {1, 3}, {3, 9}, {1, 2}));
  expect_equal(net.graph, options());
}

TEST_P(Execution, VariablesThatTakeOthersContents) {
  NetBuilder net("exchange");
  const Value x = net.input("x", {3});
  const Value a = net.variable("a", {3}), b = net.variable("b", {3}), c = net.variable("c", {3}),
              d = net.variable("d", {3});
  net.update(a, b);
  net.update(b, a);
  net.update(c, x);
  const Value sum = ops::add(d, x);
  net.update(d, sum);
  net.output("sum", sum);
  net.output("d", d);
  net.output("product", ops::mul(sum, d));
  expect_equal(net.graph, options());
}

TEST_P(Execution, NothingAndZeroSizes) {
  NetBuilder net("nothing");
  const Value x = net.input("x", {0, 3});
  net.input("unused", {2});
  net.output("y", ops::relu(x));
  net.output("s", ops::sum(x));
  expect_equal(net.graph, options());
  graph::Graph empty;
  expect_equal(empty, options());
  empty.add_input("x", {DType::kFloat32, {2}});
  expect_equal(empty, options());
}

// A device that wants all sizes of a product to be multiples of 8.
class InEights : public KernelTarget {
 public:
  InEights() : KernelTarget(table(), {desc("cpu:0", true)}) {}
  Ints padded_sizes(const plan::KernelQuery& query) const override {
    const bool linear = query.op == "linear";
    const bool a = !linear && get_attr<bool>(query.attrs, "transpose_a");
    const Shape &x = query.inputs[0].shape, &z = query.outputs[0].shape;
    const auto eights = [](int64_t n) { return (n + 7) / 8 * 8; };
    const int64_t m = z[z.rank() - 2], k = x[x.rank() - (a ? 2 : 1)];
    return {linear ? m : eights(m), eights(z[z.rank() - 1]), eights(k)};
  }
};

TEST(Execution, ProductsThatArePaddedGiveTheSame) {
  graph::Graph graph = graph::parse(R"(graph "head" {
  %0 = input "x" : float32(2, 3, 7)
  %1 = input "dy" : float32(6, 11)
  %2 = variable "w" : float32(11, 7)
  %3 = variable "b" : float32(11,)
  %4 = linear(%0, %2, %3) {activation = "relu"} : float32(2, 3, 11)
  %5 = matmul(%1, %2) {transpose_a = false, transpose_b = false} : float32(6, 7)
  %6 = reshape(%0) {shape = [6, 7]} : float32(6, 7)
  %7 = matmul(%1, %6) {transpose_a = true, transpose_b = false} : float32(11, 7)
  %8 = matmul(%1, %7) {transpose_a = false, transpose_b = false} : float32(6, 7)
  %9 = sub(%2, %7) : float32(11, 7)
  output "y" = %4
  output "dx" = %5
  output "z" = %8
  update "w" = %9
}
)",
                                    "head", builtin_ops());
  const InEights eights;
  CompileOptions options;
  options.cores = 1;
  const CompileResult result = compile(graph, eights, options);
  const auto ours = [](const PassReport& report) { return report.name == "pad_products"; };
  EXPECT_EQ(std::find_if(result.passes.begin(), result.passes.end(), ours)->rewrites, 4);
  expect_equal(graph, options, eights, Numbers::kWhole);
}

}  // namespace
}  // namespace sluice
