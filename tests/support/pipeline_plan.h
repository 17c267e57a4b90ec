#pragma once
// The deadlock known from practice: a backward buffer on the forward stream, a repeat register of quota 1, collectives
// between two stages.
#include "support/plan_builder.h"

namespace sluice::plan {

// Two stages of a pipeline on two ranks, both sharding their tensors over one group. Stage 0 repeats its weights over
// `kMicro` micro-batches (quota 1); `buffer` keeps an activation for the backward. It was put on the forward stream,
// in its chain: the next forward waits for it.
struct PipelineOptions {
  bool buffer_on_forward_stream = true;
  bool crossing_collectives = false;
  int saved_quota = 1;
};

inline Plan pipeline_plan(const PipelineOptions& o) {
  constexpr int kMicro = 4;
  PlanBuilder b("pipeline");
  const int forward_stream = b.stream("0/cpu:0", StreamKind::kCompute, 0);
  const int backward_stream = b.stream("0/cpu:0", StreamKind::kCompute, 1);
  const int stage1_stream = b.stream("1/cpu:0", StreamKind::kCompute, 0);
  const int source = b.source("weights", forward_stream);
  const int forward = b.actor("forward0", forward_stream);
  const int buffer = b.actor("buffer", o.buffer_on_forward_stream ? forward_stream : backward_stream);
  const int backward = b.actor("backward0", o.crossing_collectives ? forward_stream : backward_stream);
  const int stage1 = b.actor("stage1", stage1_stream);
  const int stage1_back = b.actor("stage1_backward", stage1_stream);
  const int repeat = b.reg("repeat", source, {}, {.quota = 1, .bytes = 64});
  b.edge(repeat, forward, 1, kMicro);
  b.edge(repeat, backward, 1, kMicro);
  const int activation = b.reg("activation", forward, {buffer, stage1}, {.quota = kMicro, .bytes = 64});
  const int saved = b.reg("saved", buffer, {backward}, {.quota = o.saved_quota, .bytes = 64});
  // Stage 1 starts its backward when all its micro-batches are in.
  const int h = b.reg("h", stage1, {}, {.quota = kMicro, .bytes = 64});
  b.edge(h, stage1_back, kMicro, kMicro);
  const int gradient = b.reg("gradient", stage1_back, {backward}, {.quota = kMicro, .bytes = 64});
  if (o.buffer_on_forward_stream) {
    b.reg("chain", buffer, {forward}, {.quota = 1, .initial_tokens = 1});
  }
  b.run(source, "repeat", {}, {b.of_reg(repeat, {16})});
  const int all_gather = b.run(forward, "all_gather", {b.of_reg(repeat, {16})}, {b.of_reg(activation, {16})});
  b.run(buffer, "identity", {b.of_reg(activation, {16})}, {b.of_reg(saved, {16})});
  const int all_gather1 = b.run(stage1, "all_gather", {b.of_reg(activation, {16})}, {b.of_reg(h, {16})});
  const int reduce1 = b.run(stage1_back, "reduce", {b.of_reg(h, {16})}, {b.of_reg(gradient, {16})});
  const int reduce0 = b.run(backward, "reduce", {b.of_reg(gradient, {16}), b.of_reg(saved, {16})});
  if (o.crossing_collectives) {
    // The ranks meet in group 0 on the way forward and in group 1 on the way back.
    b.plan.kernels[all_gather].collective = b.plan.kernels[all_gather1].collective = 0;
    b.plan.kernels[reduce0].collective = b.plan.kernels[reduce1].collective = 1;
  }
  return b.build(false);
}

}  // namespace sluice::plan
