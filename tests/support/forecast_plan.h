#pragma once
// Training on many ranks: a pipeline of stages, each on so many replicas that add up their gradients.
#include "support/plan_builder.h"

namespace sluice::plan {

struct ForecastOptions {
  int stages = 1, replicas = 1;
  int micro = 1;                                                  // micro-batches of a step
  int layers = 1;                                                 // kernels of a stage, forward; as many backward
  double forward_ns = 1000, backward_ns = 2000, update_ns = 500;  // of a kernel; of the update
  int64_t activation = 4, gradient = 4;                           // elements
  std::string device = "cpu:0";
};

// Rank r has stage r / replicas. A step: the stage before gives activations, the one after gradients, each micro-batch
// by itself; then gradients are summed over the replicas and the weights updated, before the next step begins. Kernels
// are host functions "forward", "backward" and "update".
inline Plan forecast_plan(const ForecastOptions& o) {
  PlanBuilder b("forecast");
  const auto bytes = [](int64_t elements) { return static_cast<uint64_t>(elements) * 4; };
  std::vector<int> activations(o.replicas), backward_of(o.replicas);  // of the stage before, by replica
  for (int r = 0; r < o.stages * o.replicas; ++r) {
    const int stage = r / o.replicas, replica = r % o.replicas;
    const bool first = stage == 0, last = stage == o.stages - 1;
    const std::string n = std::to_string(r), on = (r > 0 ? n + "/" : "") + o.device;
    const int host = b.stream(on, StreamKind::kHost), compute = b.stream(on);
    const int wire = b.stream(on, StreamKind::kCollective);
    const int source = b.source("step" + n, host), forward = b.actor("forward" + n, compute);
    const int backward = b.actor("backward" + n, compute), update = b.actor("update" + n, compute);
    const int sink = b.sink("sink" + n, host);
    const auto layers = [&](int actor, const std::string& name, double cost, const View& in, const View& out) {
      for (int i = 0; i < o.layers; ++i)
        b.run(actor, "host_function", {i == 0 ? in : out}, {out}, cost, {{"name", name}});
    };
    const int batch = b.reg("batch" + n, source, {}, {.quota = 2, .bytes = first ? bytes(o.activation) : 0});
    if (first) b.run(source, "host_function", {}, {b.of_reg(batch, {o.activation})}, 0, {{"name", "give"}});
    b.edge(batch, forward, 1, o.micro);
    const int weights = b.reg("weights" + n, update, {}, {.initial_tokens = 1});
    b.edge(weights, forward, 1, o.micro);
    // As many micro-batches are under way as stages follow.
    const int saved =
        b.reg("saved" + n, forward, {backward}, {.quota = o.stages - stage, .bytes = bytes(o.activation)});
    const int total = b.reg("total" + n, backward, {}, {.bytes = bytes(o.gradient), .emit_every = o.micro});
    const View in = b.of_reg(first ? batch : activations[replica], {o.activation}),
               kept = b.of_reg(saved, {o.activation});
    if (!first) b.edge(activations[replica], forward);
    layers(forward, "forward", o.forward_ns, in, kept);
    if (!last) {
      activations[replica] = b.reg("activation" + n, forward, {}, {.quota = 2, .bytes = bytes(o.activation)});
      b.run(forward, "host_function", {kept}, {b.of_reg(activations[replica], {o.activation})}, 0, {{"name", "give"}});
    }
    layers(backward, "backward", o.backward_ns, kept, b.of_reg(total, {o.gradient}));
    if (!first) {
      const int gradient =
          b.reg("gradient" + n, backward, {backward_of[replica]}, {.quota = 2, .bytes = bytes(o.activation)});
      b.run(backward, "host_function", {kept}, {b.of_reg(gradient, {o.activation})}, 0, {{"name", "give"}});
    }
    backward_of[replica] = backward;
    int sum = total;
    if (o.replicas > 1) {
      const int reduce = b.actor("reduce" + n, wire);
      sum = b.reg("sum" + n, reduce, {}, {.bytes = bytes(o.gradient)});
      b.edge(total, reduce);
      const int k = b.run(reduce, "all_reduce", {b.of_reg(total, {o.gradient})}, {b.of_reg(sum, {o.gradient})}, 0,
                          {{"reduce", "sum"}});
      b.plan.kernels[k].collective = stage;
    }
    b.edge(sum, update);
    const int done = b.reg("done" + n, update, {sink}, {.quota = 2, .bytes = bytes(o.gradient)});
    b.run(update, "host_function", {b.of_reg(sum, {o.gradient})}, {b.of_reg(done, {o.gradient})}, o.update_ns,
          {{"name", "update"}});
  }
  return b.build();
}

}  // namespace sluice::plan
