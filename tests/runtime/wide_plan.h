#pragma once
// A bundle of as many bytes as one likes, in weights and arenas, for small inputs and outputs.
#include "runtime/bundle_fixture.h"

namespace sluice::test {

struct WidePlan {
  int64_t elements = 0;  // of the variables, and of what a step keeps
  bool updates = false;  // y = x + w[:kN] + v[:kN], after which v[:kN] is x
};

// y = x + w[:kN], by way of a copy of all of w.
inline Plan wide_plan(const WidePlan& options) {
  const Shape all{options.elements};
  Plans b("wide");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int w = b.variable("w", all), copy = b.buffer("copy", static_cast<uint64_t>(options.elements) * 4);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.run(net, "copy", {b.of_variable(w, all)}, {b.of_buffer(copy, all)});
  b.run(net, "add", {b.r(x), b.of_buffer(copy, {kN})}, {b.r(y)});
  if (options.updates) {
    const int v = b.variable("v", all);
    b.run(net, "add", {b.r(y), b.v(v)}, {b.r(y)});
    b.run(net, "copy", {b.r(x)}, {b.v(v)});
  }
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

inline void save_wide(const std::string& dir, const WidePlan& options, float w) {
  std::map<std::string, BundleTensor> weights = {{"w", tensor(Floats(static_cast<size_t>(options.elements), w))}};
  if (options.updates) weights["v"] = tensor(Floats(static_cast<size_t>(options.elements), 0));
  save_bundle(dir, {wide_plan(options), "graph text\n", std::move(weights), {{"by", "test"}}});
}

}  // namespace sluice::test
