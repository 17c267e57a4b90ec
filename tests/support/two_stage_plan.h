#pragma once
// A small plan many tests look at: images are made on the host, a net runs on the compute stream.
#include "support/plan_builder.h"

namespace sluice::plan {

struct TwoStageOptions {
  int quota = 2;
  double host_ns = 1000, compute_ns = 1000;
};

inline Plan two_stage_plan(const TwoStageOptions& o = {}) {
  PlanBuilder b("two_stage");
  const int host = b.stream("cpu:0", StreamKind::kHost);
  const int compute = b.stream("cpu:0", StreamKind::kCompute, 0, 2);
  const int feed = b.feed("feed", host);
  const int prepare = b.actor("prepare", host);
  const int net = b.actor("net", compute);
  const int sink = b.sink("sink", host);
  const int w = b.variable("model.weight", {16});
  const int raw = b.reg("raw", feed, {prepare}, {.quota = 2, .bytes = 64});
  const int images = b.reg("images", prepare, {net}, {.quota = o.quota, .bytes = 64});
  const int loss = b.reg("loss", net, {sink}, {.quota = 2, .bytes = 4});
  const int scratch = b.buffer("hidden", 64);
  b.input("x", raw, b.f32({16}));
  const int shift =
      b.run(prepare, "shift", {b.of_reg(raw, {16})}, {b.of_reg(images, {16})}, o.host_ns, {{"pad", int64_t{2}}});
  b.plan.kernels[shift].source = {"train.py", 12};
  const int mul = b.run(net, "mul", {b.of_reg(images, {16}), b.of_variable(w, {16})}, {b.of_buffer(scratch, {16})},
                        o.compute_ns / 2);
  b.plan.kernels[mul].source = {"train.py", 20};
  b.plan.kernels[mul].module = "model";
  b.release(net, images);
  b.run(net, "sum", {b.of_buffer(scratch, {16})}, {b.of_reg(loss, {})}, o.compute_ns / 2);
  b.output("loss", b.of_reg(loss, {}));
  return b.build();
}

}  // namespace sluice::plan
