// Every call of the public C++ headers, attacked: empty and moved-from objects, values that are none, waits without
// end.
#include <complex>
#include <limits>
#include <thread>

#include "include/sluice/sluice.hpp"
#include "memory/core_lease.h"
#include "runtime/api/api_support.h"
#include "runtime/bundle_fixture.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

struct Attack {
  const char* name;
  std::function<void()> call;
  api::ErrorKind kind;
  std::string says = {};  // a part of the message
};

void expect_errors(const std::vector<Attack>& attacks) {
  for (const Attack& attack : attacks) {
    try {
      attack.call();
      ADD_FAILURE() << attack.name << ": no error";
    } catch (const api::Error& error) {
      EXPECT_EQ(error.kind(), attack.kind) << attack.name << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(attack.says)) << attack.name;
    }
  }
}

constexpr auto kValue = api::ErrorKind::kValue;
const api::DType kNoDType = static_cast<api::DType>(77);

TEST(DTypes, OfCppTypes) {
  EXPECT_EQ(api::dtype_of<uint8_t>(), api::DType::kUInt8);
  EXPECT_EQ(api::dtype_of<double>(), api::DType::kFloat64);
  EXPECT_EQ(api::dtype_of<std::complex<float>>(), api::DType::kComplex64);
  EXPECT_EQ(api::dtype_of<std::complex<double>>(), api::DType::kComplex128);
}

class PublicApi : public ::testing::Test {
 protected:
  PublicApi() { save_plain(folder_.path()); }
  api::Session load(api::SessionOptions options = {}) {
    return api::Session::load(engine_, folder_.path(), std::move(options));
  }
  static std::vector<api::Tensor> input(float value) { return {api::Tensor::from<float>(filled(value), {kN})}; }
  // All cores are lent to somebody else while it lives, so that every kernel is stuck.
  struct Stuck {
    explicit Stuck(api::Engine& engine) : lease(api::inside(engine).leases(), engine.cores()) {}
    CoreLease lease;
  };
  const TestFolder folder_{"sluice_public_api_"};
  api::Engine engine_{{.cores = 1}};
};

TEST_F(PublicApi, EmptyAndMovedFromObjectsAreErrors) {
  api::Engine engine{{.cores = 1}};
  const api::Engine taken_engine = std::move(engine);
  api::Session session = load();
  api::Session taken_session = std::move(session);
  api::Result result = taken_session.submit(input(1));
  api::Result taken_result = std::move(result);
  api::Plan plan = api::Plan::load(folder_.path());
  const api::Plan taken_plan = std::move(plan);
  api::Tensor tensor = input(1)[0];
  const api::Tensor taken_tensor = std::move(tensor);

  const char* const empty = "it is empty: default-constructed or moved from; use one that ";
  std::vector<Attack> attacks = {
      {"Engine::cores", [&] { engine.cores(); }, kValue, empty},
      {"Engine::memory_bytes", [&] { engine.memory_bytes(); }, kValue, empty},
      {"Engine::peak_memory_bytes", [&] { engine.peak_memory_bytes(); }, kValue, empty},
      {"Engine::load_extension", [&] { engine.load_extension("x.so"); }, kValue, empty},
      {"Session::load", [&] { api::Session::load(engine, folder_.path()); }, kValue, empty},
      {"Session::run", [&] { session.run(input(1)); }, kValue, empty},
      {"Session::submit", [&] { session.submit(input(1)); }, kValue, empty},
      {"Session::hand_over", [&] { session.hand_over(input(1)); }, kValue, empty},
      {"Session::try_submit", [&] { session.try_submit(input(1)); }, kValue, empty},
      {"Session::wait_all", [&] { session.wait_all(); }, kValue, empty},
      {"Session::stop", [&] { session.stop(); }, kValue, empty},
      {"Session::firings", [&] { session.firings(); }, kValue, empty},
      {"Session::counters", [&] { session.counters(); }, kValue, empty},
  };
  api::Plan no_plan;
  for (const api::Plan* const p : {&plan, &no_plan}) {
    attacks.push_back({"Plan::name", [p] { static_cast<void>(p->name()); }, kValue, empty});
    attacks.push_back({"Plan::inputs", [p] { p->inputs(); }, kValue, empty});
    attacks.push_back({"Plan::outputs", [p] { p->outputs(); }, kValue, empty});
    attacks.push_back({"Plan::actors", [p] { p->actors(); }, kValue, empty});
    attacks.push_back({"Plan::kernels", [p] { p->kernels(); }, kValue, empty});
    attacks.push_back({"Plan::memory_bytes", [p] { p->memory_bytes(); }, kValue, empty});
    attacks.push_back({"Plan::verify", [p] { p->verify(); }, kValue, empty});
  }
  api::Result none;
  for (api::Result* const r : {&result, &none}) {
    attacks.push_back({"Result::step", [r] { r->step(); }, kValue, empty});
    attacks.push_back({"Result::ready", [r] { r->ready(); }, kValue, empty});
    attacks.push_back({"Result::get", [r] { r->get(); }, kValue, empty});
    attacks.push_back({"Result::get(timeout)", [r] { r->get(milliseconds(1)); }, kValue, empty});
  }
  for (const api::Tensor& t : {tensor, api::Tensor()}) {
    EXPECT_EQ(t.size(), 0);
    EXPECT_EQ(t.bytes(), 0u);
    EXPECT_EQ(t.raw(), nullptr);
    EXPECT_EQ(t.data<float>(), nullptr);
    attacks.push_back({"Session::run", [&, t] { taken_session.run({t}); }, kValue, "graph 'plain': argument 'x'"});
    attacks.push_back({"save_tensors",
                       [&, t] {
                         api::save_tensors(folder_.path() + "/t", {{"t", t}});
                       },
                       kValue, "tensor 't': it has no memory"});
  }
  expect_errors(attacks);
  EXPECT_TRUE(session.inputs().empty());
  EXPECT_EQ(taken_engine.cores(), 1);
  EXPECT_EQ(taken_plan.name(), "plain");
  EXPECT_EQ(taken_tensor.size(), kN);
  EXPECT_EQ(taken_result.get()[0].data<float>()[0], 1);
  session = std::move(taken_session);  // may be used again
  EXPECT_EQ(session.run(input(2))[0].data<float>()[0], 2);
}

TEST_F(PublicApi, ValuesThatAreNoneAreErrors) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const auto memory = std::make_shared<float>(0.0f);
  api::Session session = load();
  api::Result result = session.submit(input(1));
  const auto options = [this](const api::SessionOptions& o) { return [this, o] { load(o); }; };
  std::vector<Attack> attacks = {
      {"Tensor of no dtype", [] { api::Tensor(kNoDType, {1}); }, kValue, "dtype: 77; must be one of the 12 of DType"},
      {"Tensor of no dtype, shared", [&] { api::Tensor(kNoDType, {1}, memory); }, kValue, "dtype: 77"},
      {"dtype_name", [] { api::dtype_name(kNoDType); }, kValue, "dtype: 77"},
      {"dtype_size", [] { api::dtype_size(kNoDType); }, kValue, "dtype: 77"},
      {"Port::str",
       [] {
         static_cast<void>(api::Port{"p", kNoDType, {}}.str());
       },
       kValue, "dtype: 77"},
      {"negative dimension", [] { api::Tensor(api::DType::kFloat32, {-1}); }, kValue},
      {"negative dimension, shared", [&] { api::Tensor(api::DType::kFloat32, {-1}, memory); }, kValue},
      {"huge dimension", [] { api::Tensor(api::DType::kFloat32, {kHuge}); }, kValue},
      {"huge size",
       [] {
         api::Tensor(api::DType::kUInt8, {kHuge / 2, 4});
       },
       kValue},
      {"huge size, shared",
       [&] {
         api::Tensor(api::DType::kFloat32, {kHuge, kHuge}, memory);
       },
       kValue},
      {"more memory than there is", [] { api::Tensor(api::DType::kUInt8, {kHuge / 4}); }, api::ErrorKind::kMemory},
      {"too many dimensions", [] { api::Tensor(api::DType::kFloat32, std::vector<int64_t>(99, 1)); }, kValue},
      {"no data", [] { api::Tensor(api::DType::kFloat32, {2}, nullptr); }, kValue, "no data for float32(2,)"},
      {"other number of values",
       [] {
         api::Tensor::from<float>({1, 2}, {3});
       },
       kValue},
      {"other element type", [] { api::Tensor(api::DType::kFloat32, {1}).data<double>(); }, api::ErrorKind::kType},
      {"Engine of -1 cores", [] { api::Engine({.cores = -1}); }, kValue, "cores: -1"},
      {"Engine of many cores", [] { api::Engine({.cores = std::numeric_limits<int>::max()}); }, kValue, "cores: 21474"},
      {"Engine, watchdog", [] { api::Engine({.watchdog_ms = -1}); }, kValue, "watchdog: -1"},
      {"Engine, cpus", [] { api::Engine({.cpus = {-1}}); }, kValue, "cpus: -1"},
      {"Engine, cpus", [] { api::Engine({.cpus = {1 << 20}}); }, kValue, "cpus: 1048576"},
      {"Engine, spin", [] { api::Engine({.spin = static_cast<api::Spin>(7)}); }, kValue, "spin: 7"},
      {"join as rank -1", [&] { engine_.join({.rank = -1, .size = 2, .token = "t"}); }, kValue},
      {"join as rank 2 of 2", [&] { engine_.join({.rank = 2, .size = 2, .token = "t"}); }, kValue},
      {"join none", [&] { engine_.join({.rank = 0, .size = 0, .token = "t"}); }, kValue},
      {"join many", [&] { engine_.join({.rank = 0, .size = std::numeric_limits<int>::max(), .token = "t"}); }, kValue},
      {"join port", [&] { engine_.join({.rank = 1, .size = 2, .master_port = 65536, .token = "t"}); }, kValue},
      {"join token", [&] { engine_.join({.rank = 1, .size = 2, .master_port = 1, .token = std::string(65, 't')}); },
       kValue},
      {"join timeout", [&] { engine_.join({.rank = 1, .size = 2, .master_port = 1, .token = "t", .timeout_ms = -1}); },
       kValue},
      {"load_extension", [&] { engine_.load_extension(""); }, api::ErrorKind::kIo},
      {"load_tensors", [] { api::load_tensors(""); }, api::ErrorKind::kIo},
      {"save_tensors",
       [&] {
         api::save_tensors("/no/such/folder/t", {{"t", input(1)[0]}});
       },
       api::ErrorKind::kIo},
      {"Plan::load", [] { api::Plan::load(""); }, api::ErrorKind::kIo},
      {"Session::load", [&] { api::Session::load(engine_, ""); }, api::ErrorKind::kIo},
      {"max_in_flight -1", options({.max_in_flight = -1}), kValue, "max_in_flight: -1"},
      {"max_in_flight huge", options({.max_in_flight = std::numeric_limits<int>::max()}), kValue,
       "max_in_flight: 2147"},
      {"submit_timeout", options({.submit_timeout = milliseconds(-1)}), kValue, "submit_timeout: -1 ms"},
      {"wait_timeout", options({.wait_timeout = milliseconds(-1)}), kValue, "wait_timeout: -1 ms"},
      {"inline_up_to", options({.inline_up_to = std::chrono::microseconds(-1)}), kValue, "inline_up_to: -1 us"},
      {"get(-1)", [&] { result.get(milliseconds(-1)); }, kValue, "-1 ms; must not be negative"},
      {"no input", [&] { session.run({}); }, kValue, "got 0 inputs; the plan takes 1"},
      {"input of no type", [&] { session.run({api::Tensor(api::DType::kInt8, {kN})}); }, api::ErrorKind::kType},
      {"input of no shape",
       [&] {
         session.run({api::Tensor(api::DType::kFloat32, {kN, 1})});
       },
       kValue},
      {"set_log", [] { api::set_log("no such level"); }, kValue},
  };
  expect_errors(attacks);
  EXPECT_EQ(result.get(milliseconds::max())[0].data<float>()[0], 1);  // as good as for ever
  api::Session patient = load({.submit_timeout = milliseconds::max(), .wait_timeout = milliseconds::max()});
  EXPECT_EQ(patient.run(input(3))[0].data<float>()[0], 3);
  patient.wait_all();
}

TEST_F(PublicApi, EveryWaitForAStuckKernelHasTheLimitThatWasSet) {
  api::Session session = load({.submit_timeout = milliseconds(20), .wait_timeout = milliseconds(20)});
  api::Result result;
  std::vector<Attack> attacks = {
      {"get", [&] { result.get(); }, api::ErrorKind::kTimeout, "actor 'net' on cpu:0/compute0"},
      {"get(timeout)", [&] { result.get(milliseconds(5)); }, api::ErrorKind::kTimeout, "waits for cores"},
      {"wait_all", [&] { session.wait_all(); }, api::ErrorKind::kTimeout, "steps in flight are not finished after 20"},
      {"submit", [&] { session.submit(input(1)); }, api::ErrorKind::kTimeout, "no room for another step"},
      {"run", [&] { session.run(input(1)); }, api::ErrorKind::kTimeout, "no room for another step"},
  };
  {
    const Stuck stuck(engine_);
    result = session.submit(input(1));
    while (session.try_submit(input(2)).has_value()) {
    }
    expect_errors(attacks);
  }
  EXPECT_EQ(result.get(std::chrono::seconds(10))[0].data<float>()[0], 1);
}

// From the callback, which is on a thread of the engine's own, what would wait for that thread is refused.
TEST_F(PublicApi, WhatWouldWaitForItsOwnThreadIsRefused) {
  api::Session* self = nullptr;
  api::Result last;
  std::vector<Attack> attacks = {
      {"wait_all", [&] { self->wait_all(); }, api::ErrorKind::kRuntime, "on a stream's own thread would never end"},
      {"stop", [&] { self->stop(); }, api::ErrorKind::kRuntime, "on a stream's own thread would never end"},
      {"get", [&] { last.get(); }, api::ErrorKind::kRuntime, "on a stream's own thread would never end"},
  };
  Gate ready;
  api::Session session = load({.on_output = [&](uint64_t step, const std::vector<api::Tensor>&, const std::string&) {
    if (step > 0) return;
    ready.pass();
    EXPECT_EQ(self->counters().finished, 0u);  // may be read
    expect_errors({attacks[0], attacks[2], attacks[1]});
  }});
  self = &session;
  api::Result first = session.submit(input(1));
  last = session.submit(input(2));
  ready.open();
  first.get();
}

TEST_F(PublicApi, WhatIsHandedOverIsNotCopied) {
  api::SessionOptions options;
  options.zero_copy = true;
  api::Session session = load(options);
  EXPECT_EQ(session.inputs()[0].copied, "");
  EXPECT_EQ(load().inputs()[0].copied, "the session copies at its ports");
  std::vector<api::Tensor> kept;
  for (int i = 0; i < 50; ++i) {
    api::Result result = session.hand_over(input(static_cast<float>(i)));
    kept.push_back(result.get()[0]);
    // A result of one step is the input of the next.
    kept.push_back(session.hand_over({result.get()[0]}).get()[0]);
  }
  session.wait_all();
  EXPECT_EQ(session.counters().input_copies, 0u);
  EXPECT_EQ(session.counters().output_copies, 0u);
  int released = 0;
  {
    alignas(64) static float memory[kN] = {5, 5, 5, 5};
    api::Tensor mine(api::DType::kFloat32, {kN}, std::shared_ptr<void>(memory, [&](void*) { ++released; }));
    EXPECT_EQ(session.hand_over({std::move(mine)}).get()[0].data<float>()[3], 5.0f);
  }
  session.wait_all();
  expect_errors({{"too few", [&] { session.hand_over({}); }, kValue, "got 0 inputs; the plan takes 1"},
                 {"no memory", [&] { session.hand_over({api::Tensor()}); }, kValue}});
  session.stop();
  EXPECT_EQ(released, 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(kept[static_cast<size_t>(i)].data<float>()[0], static_cast<float>(i / 2));
}

TEST_F(PublicApi, OnOutputHasRunBeforeAnybodyIsToldOfTheStep) {
  constexpr int kRounds = 500;
  std::atomic<uint64_t> told{0};
  api::Session session = load({.on_output = [&](uint64_t step, const std::vector<api::Tensor>&, const std::string&) {
    for (int i = 0; i < 20; ++i) std::this_thread::yield();  // the waiter would win this race
    told = step + 1;
  }});
  for (uint64_t round = 0; round < kRounds; ++round) {
    api::Result result = session.submit(input(1));
    switch (round % 3) {
      case 0: result.get(); break;
      case 1: session.wait_all(); break;
      case 2:
        while (!result.ready()) std::this_thread::yield();
    }
    ASSERT_EQ(told, round + 1);
  }
}

TEST_F(PublicApi, WhatWaitAllHasWaitedForIsCounted) {
  api::Session session = load();
  for (uint64_t n = 1; n <= 500; ++n) {
    session.submit(input(1));
    session.wait_all();
    for (const api::Counters::Actor& actor : session.counters().actors) ASSERT_EQ(actor.firings, n) << actor.name;
  }
}

TEST_F(PublicApi, SessionsOfSeveralWeightsOfOneNameShareEach) {
  const auto weigh = [&](float w) {
    save_bundle(folder_.path(), {plain_plan(), "graph text\n", {{"w", tensor({w, 6, 7, 8})}}, {}});
  };
  const uint64_t none = engine_.memory_bytes();
  weigh(1);
  const api::Session first = load();
  const uint64_t one = engine_.memory_bytes() - none;
  EXPECT_EQ(first.counters().shared, 64u);
  weigh(2);
  const api::Session second = load(), third = load();
  weigh(1);
  const api::Session fourth = load();
  EXPECT_EQ(engine_.memory_bytes() - none, 4 * one - 2 * 64);
  const api::Plan plan = api::Plan::load(folder_.path());
  EXPECT_EQ(plan.memory_bytes(3), 3 * plan.memory_bytes() - 2 * 64);
  EXPECT_THROW(static_cast<void>(plan.memory_bytes(0)), api::Error);
}

TEST_F(PublicApi, SessionsThatOnlyReadAVariableShareItsBytes) {
  const uint64_t none = engine_.memory_bytes();
  api::Session first = load();
  const uint64_t one = engine_.memory_bytes() - none;
  {
    api::Session second = load();
    EXPECT_EQ(engine_.memory_bytes() - none, 2 * one - 64);  // all but the variable, of 64 aligned bytes
    EXPECT_EQ(second.run(input(1))[1].data<float>()[3], 4);
    save_bundle(folder_.path(), {plain_plan(), "graph text\n", {{"w", tensor({5, 6, 7, 8})}}, {}});
    api::Session other = load();
    EXPECT_EQ(other.run(input(1))[1].data<float>()[3], 8);
    EXPECT_EQ(second.run(input(1))[1].data<float>()[3], 4);
    EXPECT_EQ(engine_.memory_bytes() - none, 3 * one - 64);
  }
  EXPECT_EQ(engine_.memory_bytes() - none, one);
  EXPECT_EQ(first.run(input(1))[1].data<float>()[3], 4);
}

// Also beyond what the plan has slots for.
TEST_F(PublicApi, AsManyStepsAreAdmittedAsCountersTell) {
  for (const int asked : {0, 1, 2, 64}) {
    api::Session session = load({.max_in_flight = asked});
    const int told = session.counters().max_in_flight;
    EXPECT_EQ(told, asked > 0 ? asked : 2);
    std::vector<api::Result> results;
    {
      const Stuck stuck(engine_);
      while (std::optional<api::Result> result = session.try_submit(input(static_cast<float>(results.size()))))
        results.push_back(*std::move(result));
      EXPECT_EQ(session.counters().in_flight, told);
    }
    ASSERT_EQ(results.size(), static_cast<size_t>(told));
    for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].get()[0].data<float>()[0], static_cast<float>(i));
  }
}

}  // namespace
}  // namespace sluice::test
