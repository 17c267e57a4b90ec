#pragma once
// Devices without kernels: answers a compiler's questions by fixed rules.
#include <set>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/target.h"

namespace sluice {

class FakeTarget : public plan::Target {
 public:
  std::set<std::string> missing = {"fused_conv", "fused_batch_norm", "fused_matmul", "fused_reduce",
                                   "fused_rows", "multi_update"};       // ops without a kernel, on every device
  std::set<std::string> missing_on_sim = {"all_gather", "all_to_all"};  // the host's run there
  bool conv_channels_last = true;
  bool fuses = false;  // elementwise ops, and reductions of rows
  bool pads = false;   // products, to multiples of 8

  std::vector<plan::DeviceDesc> devices() const override {
    return {{{0, DeviceKind::kCpu, 0}, true, false, 4, 0},
            {{0, DeviceKind::kSim, 0}, false, true, 1, 0},
            {{0, DeviceKind::kSim, 1}, false, true, 1, 0},
            {{0, DeviceKind::kCuda, 0}, false, true, 1, 0, true}};
  }
  bool has_kernel(const std::string& op, DeviceKind kind) const override {
    return !missing.contains(op) && !(kind == DeviceKind::kSim && missing_on_sim.contains(op));
  }
  plan::LayoutPreference layouts(const plan::KernelQuery& q) const override {
    using plan::Layout;
    plan::LayoutPreference p;
    const bool any = elementwise(q.op) || q.op == "copy";
    p.inputs.assign(q.inputs.size(), any ? Layout::kAny : Layout::kContiguous);
    p.outputs.assign(q.outputs.size(), any ? Layout::kAny : Layout::kContiguous);
    if (conv_channels_last && q.op == "conv") p.inputs[0] = p.outputs[0] = Layout::kChannelsLast;
    return p;
  }
  uint64_t workspace_bytes(const plan::KernelQuery& q) const override { return q.op == "matmul" ? 256 : 0; }
  std::vector<plan::InPlacePair> in_place(const plan::KernelQuery& q) const override {
    std::vector<plan::InPlacePair> pairs;
    const bool update = q.op.ends_with("_update");
    if (!elementwise(q.op) && !update) return pairs;
    for (int o = 0; o < static_cast<int>(q.outputs.size()); ++o) {
      for (int i = 0; i < static_cast<int>(q.inputs.size()); ++i) {
        // An update reads (param, grad, state...) and writes (param, state...).
        const bool pair = update ? i == (o == 0 ? 0 : o + 1) : true;
        if (pair && q.inputs[i] == q.outputs[o]) pairs.push_back({o, i});
      }
    }
    return pairs;
  }
  bool can_fuse(const plan::KernelQuery& q) const override { return fuses && (elementwise(q.op) || reduces(q.op)); }
  Ints padded_sizes(const plan::KernelQuery& q) const override {
    if (!pads) return {};
    const bool linear = q.op == "linear";
    const auto size = [&](int input, bool first) {
      const Shape& shape = q.inputs[input].shape;
      return shape[shape.rank() - (first ? 2 : 1)];
    };
    const bool a = !linear && get_attr<bool>(q.attrs, "transpose_a"),
               b = linear || get_attr<bool>(q.attrs, "transpose_b");
    const int64_t m = size(0, !a), n = size(1, b), k = size(0, a);
    const auto eights = [](int64_t x) { return (x + 7) / 8 * 8; };
    const Ints sizes = {linear ? m : eights(m), eights(n), eights(k)};
    return sizes == Ints{m, n, k} ? Ints{} : sizes;
  }
  double cost_ns(const plan::KernelQuery& q) const override {
    double bytes = 0;
    for (const TensorSpec& s : q.outputs) bytes += static_cast<double>(s.extent_bytes());
    return 100 + bytes / 10;
  }
  std::string fingerprint() const override { return "fake"; }

 private:
  static bool reduces(const std::string& op) {
    static const std::set<std::string> kOps = {"sum", "mean", "amax"};
    return kOps.contains(op);
  }
  static bool elementwise(const std::string& op) {
    static const std::set<std::string> kOps = {"add",  "sub",     "mul", "div",           "neg",     "relu",   "exp",
                                               "tanh", "sigmoid", "abs", "relu_backward", "maximum", "dropout"};
    return kOps.contains(op);
  }
};

// Null where there is none.
inline const plan::Register* find_register(const plan::Plan& plan, const std::string& name) {
  for (const plan::Register& r : plan.registers) {
    if (r.name == name) return &r;
  }
  return nullptr;
}

}  // namespace sluice
