#pragma once
// Training of a GPT on ranks in up to three axes, on paper: for tests of plans of many ranks, and for measuring how
// long they take to make.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/nets.h"
#include "compiler/options.h"
#include "graph/ops/embedding.h"
#include "graph/ops/global.h"
#include "graph/ops/micro_batches.h"
#include "graph/origin.h"
#include "plan/target.h"

namespace sluice {

struct GptSizes {
  int layers = 2;
  int64_t hidden = 32, heads = 8, length = 8, vocabulary = 64;
  int64_t batch = 0;           // of a micro-batch; 0: two sequences for each rank of `dp`
  int dp = 1, tp = 1, pp = 1;  // stages are meshes of dp x tp ranks
  int micro = 1;               // micro-batches of a step
  int ranks() const { return dp * tp * pp; }
};

struct MeshGpt {
  graph::Graph graph;
  CompileOptions options;  // with the ranks, and how parameters lie
};

// Devices with every kernel, of as many ranks as are asked for. Kernels take what they must compute or move.
class PaperTarget final : public plan::Target {
 public:
  explicit PaperTarget(int ranks, double flops_per_s = 400e12, double bytes_per_s = 3e12)
      : ranks_(ranks), flops_per_s_(flops_per_s), bytes_per_s_(bytes_per_s) {}
  std::vector<plan::DeviceDesc> devices() const override {
    std::vector<plan::DeviceDesc> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back({{rank, DeviceKind::kCpu, 0}, true, false, 4, 0});
    return all;
  }
  bool has_kernel(const std::string& op, DeviceKind) const override { return !op.starts_with("fused"); }
  plan::LayoutPreference layouts(const plan::KernelQuery& q) const override {
    return {std::vector(q.inputs.size(), plan::Layout::kAny), std::vector(q.outputs.size(), plan::Layout::kContiguous)};
  }
  uint64_t workspace_bytes(const plan::KernelQuery&) const override { return 0; }
  std::vector<plan::InPlacePair> in_place(const plan::KernelQuery& q) const override {
    const bool updates = q.op == "sgd_update" && q.outputs.size() == 2 && q.inputs.at(2) == q.outputs[1];
    return updates ? std::vector<plan::InPlacePair>{{0, 0}, {1, 2}} : std::vector<plan::InPlacePair>();
  }
  bool can_fuse(const plan::KernelQuery&) const override { return false; }
  double cost_ns(const plan::KernelQuery& q) const override {
    return 1e9 * std::max(q.cost.flops / flops_per_s_, q.cost.bytes / bytes_per_s_);
  }
  std::string fingerprint() const override { return "paper"; }

 private:
  const int ranks_;
  const double flops_per_s_, bytes_per_s_;
};

// Builds it layer by layer.
class GptBuilder {
 public:
  explicit GptBuilder(const GptSizes& sizes) : sizes_(sizes), batch_(sizes.batch > 0 ? sizes.batch : 2 * sizes.dp) {
    for (int stage = 0; stage < sizes.pp; ++stage) {
      std::vector<DeviceId> devices;
      for (int i = 0; i < sizes.dp * sizes.tp; ++i)
        devices.push_back({stage * sizes.dp * sizes.tp + i, DeviceKind::kCpu, 0});
      meshes_.emplace_back(devices, std::vector<DeviceMesh::Axis>{{sizes.dp, "dp"}, {sizes.tp, "tp"}});
    }
    net_.graph.set_micro_batches(sizes.micro);
    options_.ranks = sizes.ranks();
    options_.name = "gpt";
  }

  MeshGpt build() {
    const int64_t hidden = sizes_.hidden;
    const Value ids = net_.input("ids", {batch_, sizes_.length}, DType::kInt64);
    const Value classes = net_.input("classes", {batch_ * sizes_.length}, DType::kInt64);
    options_.components["ids"] = {meshes_.front(), rows()};
    options_.components["classes"] = {meshes_.back(), rows()};
    net_.module("table", 1);
    Value x = ops::embedding(parameter(0, "table", {sizes_.vocabulary, hidden}, B), on(0, ids));
    for (int i = 0; i < sizes_.layers; ++i) x = layer(i, x);
    net_.module("head", 1000);
    const int last = sizes_.pp - 1;
    const Value logits = ops::linear(norm(last, "norm", x), parameter(last, "head", {sizes_.vocabulary, hidden}, S(0)));
    const Value loss =
        ops::cross_entropy(ops::reshape(logits, {batch_ * sizes_.length, sizes_.vocabulary}), on(last, classes));
    train(loss);
    net_.output("loss", sizes_.micro > 1 ? of_step([&] { return ops::pack(loss, sizes_.micro); }) : loss);
    return {std::move(net_.graph), std::move(options_)};
  }

 private:
  static constexpr int B = -1;  // along tp
  static constexpr int S(int axis) { return axis; }
  static NdSbp lies(int tp) { return NdSbp({Sbp::broadcast(), tp < 0 ? Sbp::broadcast() : Sbp::split(tp)}); }
  static NdSbp rows() { return NdSbp({Sbp::split(0), Sbp::broadcast()}); }
  Value on(int stage, const Value& x) { return ops::to_global(x, meshes_[static_cast<size_t>(stage)], rows()); }

  Value parameter(int stage, const std::string& name, Shape shape, int tp) {
    const Value v = net_.parameter(name, std::move(shape));
    const GlobalPlacement placement{meshes_[static_cast<size_t>(stage)], lies(tp)};
    options_.components[name] = placement;
    placements_.push_back(placement);
    return ops::to_global(v, placement.mesh, placement.sbp);
  }
  Value norm(int stage, const std::string& name, const Value& x) {
    return ops::layer_norm(x, {sizes_.hidden}, parameter(stage, name, {sizes_.hidden}, B));
  }

  Value layer(int i, Value x) {
    const int stage = i * sizes_.pp / sizes_.layers;
    const int64_t hidden = sizes_.hidden, heads = sizes_.heads, length = sizes_.length;
    const std::string p = "layers." + std::to_string(i);
    net_.module(p, i + 2);
    if (i > 0 && stage != (i - 1) * sizes_.pp / sizes_.layers) x = on(stage, x);
    const auto project = [&](const Value& v, const std::string& name, int64_t to, int64_t from, int tp) {
      return ops::linear(v, parameter(stage, p + "." + name, {to, from}, tp));
    };
    const auto split = [&](const Value& v) {
      return ops::permute(ops::reshape(v, {batch_, length, heads, hidden / heads}), {0, 2, 1, 3});
    };
    const Value n = norm(stage, p + ".norm1", x);
    ops::AttentionOptions options;
    options.is_causal = true;
    const Value a = ops::scaled_dot_product_attention(split(project(n, "q", hidden, hidden, S(0))),
                                                      split(project(n, "k", hidden, hidden, S(0))),
                                                      split(project(n, "v", hidden, hidden, S(0))), options);
    const Value joined = ops::reshape(ops::permute(a, {0, 2, 1, 3}), {batch_, length, hidden});
    // Sums are whole before they are added: else what is whole would become a sum, of which the first rank has all.
    x = ops::add(x, on(stage, project(joined, "o", hidden, hidden, S(1))));
    const Value h = ops::gelu(project(norm(stage, p + ".norm2", x), "up", 4 * hidden, hidden, S(0)));
    return ops::add(x, on(stage, project(h, "down", hidden, 4 * hidden, S(1))));
  }

  // `make` is called once a step.
  template <class Make>
  Value of_step(Make make) {
    const int before = std::exchange(net_.builder.context.every, sizes_.micro);
    Value made = make();
    net_.builder.context.every = before;
    return made;
  }

  void train(const Value& loss) {
    const Value lr = net_.variable("lr", {});
    const std::vector<Value> roots{loss}, none;
    std::vector<Value> grads = grad(roots, net_.parameters, none);
    net_.module("optimizer", 2000);
    const OriginScope belongs(Role::kUpdate);
    if (sizes_.micro > 1)
      for (Value& g : grads) g = ops::accumulate(g, sizes_.micro);
    for (size_t i = 0; i < grads.size(); ++i) {
      const std::string name = "momentum." + std::to_string(i);
      const Value buffer = net_.variable(name, net_.parameters[i].shape());
      options_.components[name] = placements_[i];
      ops::SgdOptions options;
      options.momentum = 0.9;
      const int before = std::exchange(net_.builder.context.every, sizes_.micro);
      const std::vector<Value> updated = ops::sgd_update({net_.parameters[i], grads[i], lr, buffer, {}}, options);
      net_.builder.context.every = before;
      net_.update(net_.parameters[i], updated[0]);
      net_.update(buffer, updated[1]);
    }
  }

  const GptSizes sizes_;
  const int64_t batch_;
  std::vector<DeviceMesh> meshes_;
  std::vector<GlobalPlacement> placements_;  // of parameters
  CompileOptions options_;
  NetBuilder net_{"gpt"};
};

inline MeshGpt mesh_gpt(const GptSizes& sizes) { return GptBuilder(sizes).build(); }

}  // namespace sluice
