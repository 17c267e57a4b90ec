#pragma once
// Graphs of usual shapes, of any size: for tests and for measuring compile time.
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/ops/activation.h"
#include "graph/ops/attention.h"
#include "graph/ops/convolution.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/losses.h"
#include "graph/ops/matmul.h"
#include "graph/ops/movement.h"
#include "graph/ops/normalization.h"
#include "graph/ops/optimizer_updates.h"
#include "graph/ops/reduction.h"
#include "graph/ops/softmax.h"
#include "graph/tape.h"

namespace sluice {

// Builds a graph by calling ops. Values are handles on graph values; parameters take gradients.
class NetBuilder {
 public:
  explicit NetBuilder(const std::string& name = "net") : builder(graph, DeviceId{}), scope_(builder) {
    graph.name = name;
  }

  Value input(const std::string& name, Shape shape, DType dtype = DType::kFloat32) {
    return builder.value(graph.add_input(name, {dtype, shape}));
  }
  Value variable(const std::string& name, Shape shape, DType dtype = DType::kFloat32) {
    return builder.value(graph.add_variable(name, {dtype, shape}));
  }
  Value constant(const std::string& name, Shape shape, DType dtype = DType::kFloat32) {
    return builder.value(graph.add_variable(name, {dtype, shape}, true));
  }
  Value parameter(const std::string& name, Shape shape) {
    Value v = variable(name, shape);
    v.impl()->autograd = std::make_unique<AutogradMeta>();
    v.impl()->autograd->requires_grad = true;
    parameters.push_back(v);
    return v;
  }
  void output(const std::string& name, const Value& v) { graph.add_output(name, builder.id(v)); }
  void update(const Value& variable, const Value& content) {
    graph.set_update(graph.values()[builder.id(variable)].index, builder.id(content));
  }
  void module(const std::string& name, int line) {
    builder.context.module = name;
    builder.context.source = {"net.py", line};
  }
  // Gradients of the parameters and a momentum step for each.
  void train(const Value& loss) {
    const Value lr = variable("lr", {});
    std::vector<Value> roots{loss}, none;
    const std::vector<Value> grads = grad(roots, parameters, none);
    module("optimizer", 999);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Value buffer = variable("momentum." + std::to_string(i), parameters[i].shape());
      ops::SgdInputs inputs{parameters[i], grads[i], lr, buffer, {}};
      ops::SgdOptions options;
      options.momentum = 0.9;
      const std::vector<Value> updated = ops::sgd_update(inputs, options);
      update(parameters[i], updated[0]);
      update(buffer, updated[1]);
    }
  }

  graph::Graph graph;
  graph::GraphBuilder builder;
  std::vector<Value> parameters;

 private:
  ExecutorScope scope_;
};

// loss of a two-layer perceptron; trained when `train`.
inline graph::Graph mlp(bool train, int64_t batch = 32, int64_t width = 128) {
  NetBuilder net("mlp");
  const Value x = net.input("x", {batch, 64}), t = net.input("t", {batch}, DType::kInt64);
  net.module("fc1", 1);
  Value h = ops::relu(ops::linear(x, net.parameter("fc1.weight", {width, 64}), net.parameter("fc1.bias", {width})));
  net.module("fc2", 2);
  h = ops::relu(ops::linear(h, net.parameter("fc2.weight", {width, width}), net.parameter("fc2.bias", {width})));
  net.module("fc3", 3);
  const Value y = ops::linear(h, net.parameter("fc3.weight", {10, width}), net.parameter("fc3.bias", {10}));
  net.module("loss", 4);
  const Value loss = ops::cross_entropy(y, t);
  net.output("loss", loss);
  if (train) net.train(loss);
  return net.graph;
}

// A chain of residual convolution blocks with at least `ops` nodes.
inline graph::Graph conv_net(int ops, bool train = false) {
  NetBuilder net("conv_net");
  Value x = net.input("x", {2, 8, 8, 8});
  for (int i = 0; static_cast<int>(net.graph.nodes().size()) < (train ? ops / 3 : ops); ++i) {
    net.module("block" + std::to_string(i), i + 1);
    const std::string p = "block" + std::to_string(i);
    ops::ConvOptions options;
    options.padding = {1, 1};
    const Value h = ops::relu(ops::conv(x, net.parameter(p + ".weight", {8, 8, 3, 3}), {}, options));
    x = ops::relu(ops::add(ops::mul(h, ops::sigmoid(h)), x));
  }
  // Flattened, so that the order of the sum does not depend on the layout the blocks work in.
  const Value loss = ops::mean(ops::reshape(x, {-1}));
  net.output("loss", loss);
  if (train) net.train(loss);
  return net.graph;
}

// A chain of attention blocks with at least `ops` nodes.
inline graph::Graph transformer(int ops, bool train = false) {
  NetBuilder net("transformer");
  const int64_t width = 16, heads = 2, length = 8;
  Value x = net.input("x", {2, length, width});
  for (int i = 0; static_cast<int>(net.graph.nodes().size()) < (train ? ops / 3 : ops); ++i) {
    const std::string p = "layer" + std::to_string(i);
    net.module(p, i + 1);
    const auto project = [&](const Value& v, const std::string& name) {
      return ops::linear(v, net.parameter(p + "." + name, {width, width}));
    };
    const auto split = [&](const Value& v) {
      return ops::permute(ops::reshape(v, {2, length, heads, width / heads}), {0, 2, 1, 3});
    };
    const Value n = ops::layer_norm(x, {width}, net.parameter(p + ".norm", {width}));
    const Value a =
        ops::scaled_dot_product_attention(split(project(n, "q")), split(project(n, "k")), split(project(n, "v")));
    x = ops::add(x, project(ops::reshape(ops::permute(a, {0, 2, 1, 3}), {2, length, width}), "o"));
    x = ops::add(x, project(ops::gelu(project(x, "up")), "down"));
  }
  const Value loss = ops::mean(x);
  net.output("loss", loss);
  if (train) net.train(loss);
  return net.graph;
}

}  // namespace sluice
