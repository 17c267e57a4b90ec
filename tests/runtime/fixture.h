#pragma once
// Small plans and helpers that the runtime's tests share. Kernels are host functions on float32 vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "memory/storage.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "support/error_of.h"
#include "support/memory_watch.h"
#include "support/plan_builder.h"

namespace sluice::test {

using namespace sluice::plan;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

inline constexpr int64_t kN = 4;  // elements of every tensor

// out[i] = f(inputs' i-th elements, summed)
inline HostFunction elementwise(std::function<float(float)> f) {
  return [f](const KernelArgs& args, const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs) {
    for (int64_t i = 0; i < numel(outputs[0].shape); ++i) {
      float sum = 0;
      for (size_t k = 0; k < inputs.size(); ++k) sum += static_cast<const float*>(args.inputs[k])[i];
      for (size_t k = 0; k < outputs.size(); ++k) static_cast<float*>(args.outputs[k])[i] = f(sum);
    }
  };
}

inline HostFunctions functions() {
  HostFunctions f;
  f["copy"] = elementwise([](float x) { return x; });
  f["add_one"] = elementwise([](float x) { return x + 1; });
  f["twice"] = elementwise([](float x) { return 2 * x; });
  return f;
}

// Fails, with a message, for a first element equal to `bad`.
inline HostFunction failing(float bad, float add = 0) {
  return elementwise([bad, add](float x) {
    if (x == bad) fail(ErrorKind::kValue, "picky: {} is not accepted; give another", x);
    return x + add;
  });
}

class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_arrived(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= n; });
  }
  // Copies when open.
  HostFunction function() {
    return [this](const KernelArgs& a, const std::vector<TensorSpec>& i, const std::vector<TensorSpec>& o) {
      pass();
      elementwise([](float x) { return x; })(a, i, o);
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

// A builder whose kernels are host functions.
class Plans : public PlanBuilder {
 public:
  using PlanBuilder::PlanBuilder;
  static NamedAttrs named(const std::string& name) { return {{"name", name}}; }
  int call(int actor, const std::string& name, std::vector<View> in, std::vector<View> out) {
    const int k = run(actor, "host_function", std::move(in), std::move(out), 0, named(name));
    plan.kernels[k].source = {"net.py", 10 + k};
    return k;
  }
  static View r(int reg, int token = 0) { return of_reg(reg, {kN}, token); }
  static View v(int variable) { return of_variable(variable, {kN}); }
};

// feed -> stages, each on its own stream when `streams` > 1 -> sink; input "x", output "y".
inline Plan pipeline(const std::vector<std::string>& stages, int quota = 2, int streams = 1) {
  Plans b("pipeline");
  for (int s = 0; s < streams; ++s) b.stream("cpu:0", StreamKind::kHost, s);
  int from = b.feed("feed", 0);
  std::vector<int> actors;
  for (size_t i = 0; i < stages.size(); ++i)
    actors.push_back(b.actor("s" + std::to_string(i), static_cast<int>(i + 1) % streams));
  actors.push_back(b.sink("sink", 0));
  std::vector<int> regs;
  for (size_t i = 0; i < actors.size(); ++i) {
    regs.push_back(b.reg("r" + std::to_string(i), from, {actors[i]}, {.quota = quota, .bytes = kN * 4}));
    from = actors[i];
  }
  for (size_t i = 0; i < stages.size(); ++i) b.call(actors[i], stages[i], {b.r(regs[i])}, {b.r(regs[i + 1])});
  b.input("x", regs.front(), b.f32({kN}));
  b.output("y", b.r(regs.back()));
  return b.build();
}

inline Floats filled(float x) { return Floats(kN, x); }

inline StepHandle submit(Session& session, const Floats& x) {
  const InputTensor input{x.data(), PlanBuilder::f32({static_cast<int64_t>(x.size())})};
  return session.submit({&input, 1});
}

inline Floats values(const OutputTensor& output) {
  const auto* data = static_cast<const float*>(output.storage->data());
  return {data, data + numel(output.type.shape)};
}

inline Floats result(StepHandle step) { return values(step.outputs()[0]); }

inline std::shared_ptr<Storage> variable(Engine& engine, float x) {
  auto storage = std::make_shared<Storage>(engine.allocator({}), 64);
  std::fill_n(static_cast<float*>(storage->data()), kN, x);
  return storage;
}

inline uint64_t firings(const Session& session, const std::string& actor) {
  for (const ActorStats& a : session.stats().actors) {
    if (a.name == actor) return a.firings;
  }
  return UINT64_MAX;
}

// The same once it has reached `n`: a firing is counted a moment after its step has been answered.
inline uint64_t settled_firings(const Session& session, const std::string& actor, uint64_t n) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (firings(session, actor) < n && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return firings(session, actor);
}

// Host -> device -> host, with host function `stage` on the device; feedback orders its steps.
inline Plan device_plan(const std::string& stage, const std::string& on = "sim:0") {
  Plans b("device");
  const int host = b.stream("cpu:0", StreamKind::kHost), in = b.stream(on, StreamKind::kCopyIn);
  const int compute = b.stream(on, StreamKind::kCompute), out = b.stream(on, StreamKind::kCopyOut);
  const int device = b.space(SpaceKind::kDevice, on);
  const int feed = b.feed("feed", host), up = b.actor("up", in), net = b.actor("net", compute);
  const int down = b.actor("down", out), sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.quota = 2, .bytes = 16, .space = device});
  const int dy = b.reg("dy", net, {down}, {.quota = 2, .bytes = 16, .space = device});
  const int y = b.reg("y", down, {sink}, {.quota = 2, .bytes = 16});
  b.reg("order", net, {net}, {.quota = 2, .initial_tokens = 1});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.call(net, stage, {b.r(dx)}, {b.r(dy)});
  b.run(down, "copy", {b.r(dy)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

// A step adds one to 'w', runs "stage" on its input, adds one to 'v'; feedback orders the steps.
inline Plan updating_plan(const std::string& stage) {
  Plans b("updates");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), net = b.actor("net", 1), sink = b.sink("sink", 0);
  const int w = b.variable("w", {kN}), v = b.variable("v", {kN});
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.reg("order", net, {net}, {.quota = 2, .initial_tokens = 1});
  b.call(net, "add_one", {b.v(w)}, {b.v(w)});
  b.call(net, stage, {b.r(x)}, {b.r(y)});
  b.call(net, "add_one", {b.v(v)}, {b.v(v)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

}  // namespace sluice::test
