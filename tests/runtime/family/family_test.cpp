// Sessions of the plans of one family, and their bundles; the public API on them.
#include "runtime/family/family.h"

#include <fstream>
#include <thread>

#include "include/sluice/sluice.h"
#include "include/sluice/sluice.hpp"
#include "runtime/bundle_fixture.h"
#include "runtime/family/family_bundle.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using plan::Family;
using plan::FamilyAxis;
using plan::Fit;

// y = x + x, w beside it: for x of (n, 3).
Plan doubling(int64_t n, bool updates = false) {
  PlanBuilder b("doubling");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const uint64_t bytes = static_cast<uint64_t>(n) * 12;
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = bytes});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = bytes});
  const int w = b.variable("w", {3});
  const Shape shape{n, 3};
  if (updates) b.run(net, "copy", {b.of_variable(w, {3})}, {b.of_variable(w, {3})});
  b.run(net, "add", {b.of_reg(x, shape), b.of_reg(x, shape)}, {b.of_reg(y, shape)});
  b.input("x", x, b.f32(shape));
  b.output("y", b.of_reg(y, shape));
  return b.build();
}

FamilyBundle doublings(Fit fit, const std::vector<int64_t>& sizes, bool updates = false) {
  const FamilyAxis rows{0, 0}, three{FamilyAxis::kFixed, 3};
  FamilyBundle bundle{{"doubling",
                       {{"rows", 1, sizes.back(), fit}},
                       {{"x", DType::kFloat32, {rows, three}}},
                       {{"y", DType::kFloat32, {rows, three}}},
                       {}},
                      {},
                      {{"by", "test"}}};
  const BundleTensor w = tensor({7, 8, 9});
  for (const int64_t n : sizes) {
    bundle.family.members.push_back({n});
    bundle.members.push_back({doubling(n, updates), "graph text\n", {{"w", w}}, {}, {}});
  }
  return bundle;
}

Floats counted(int64_t n, float from) {
  Floats values(static_cast<size_t>(n) * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = from + static_cast<float>(i);
  return values;
}

InputTensor input(const Floats& values) {
  return {values.data(), PlanBuilder::f32({static_cast<int64_t>(values.size() / 3), 3})};
}

// Expects the results of a step of `x`.
void expect_doubled(FamilyStep step, const Floats& x) {
  const std::vector<OutputTensor>& outputs = step.outputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].type.shape, (Shape{static_cast<int64_t>(x.size() / 3), 3}));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(static_cast<const float*>(outputs[0].storage->data())[i], 2 * x[i]);
}

class FamilyTest : public ::testing::Test {
 protected:
  FamilyTest() : folder_("sluice_family_") {}
  const std::string& save(const FamilyBundle& bundle) {
    save_family_bundle(folder_.path(), bundle);
    return folder_.path();
  }
  void write(const std::string& file, const std::string& text) {
    std::ofstream(fs::path(folder_.path()) / file, std::ios::binary) << text;
  }
  TestFolder folder_;
  Engine engine_;
};

TEST_F(FamilyTest, EverySizeRuns) {
  for (const Fit fit : {Fit::kPad, Fit::kSplit}) {
    SessionFamily family = SessionFamily::load(engine_, save(doublings(fit, {2, 4, 8})));
    EXPECT_EQ(family.inputs()[0].type.shape, (Shape{8, 3}));
    std::vector<std::pair<FamilyStep, Floats>> steps;
    for (int64_t n = 1; n <= 8; ++n) {
      Floats x = counted(n, static_cast<float>(n));
      steps.emplace_back(family.submit(std::vector{input(x)}), x);
    }
    for (const auto& [step, x] : steps) expect_doubled(step, x);
    family.wait_all();
    EXPECT_EQ(family.stats().finished, fit == Fit::kPad ? 8u : 13u);
    EXPECT_EQ(error_of([&] { family.submit(std::vector{input(counted(9, 0))}); }),
              "value: graph 'doubling': argument 'x': axis 0 is 9; dim 'rows' is at most 8");
    EXPECT_EQ(error_of([&] {
                family.submit(std::vector{InputTensor{nullptr, PlanBuilder::f32({3, 3})}});
              }),
              "value: graph 'doubling': argument 'x': got no data; expected float32(3, 3)");
    const TensorSpec ints = TensorSpec::contiguous({DType::kInt32, {3, 3}});
    EXPECT_EQ(error_of([&] {
                family.submit(std::vector{InputTensor{&ints, ints}});
              }),
              "type: graph 'doubling': argument 'x' has dtype int32; expected float32");
  }
}

TEST_F(FamilyTest, StridedInputsArePaddedAndSplit) {
  SessionFamily family = SessionFamily::load(engine_, save(doublings(Fit::kSplit, {2, 4})));
  const Floats columns = {1, 2, 3, 10, 20, 30, 100, 200, 300};  // of three rows
  const InputTensor x{columns.data(), {DType::kFloat32, {3, 3}, {1, 3}}};
  expect_doubled(family.submit(std::vector{x}), {1, 10, 100, 2, 20, 200, 3, 30, 300});
}

TEST_F(FamilyTest, MembersShareArenasAndVariables) {
  const std::string dir = save(doublings(Fit::kPad, {2, 64, 128}));
  uint64_t alone = 0;
  {
    const Session largest =
        load_session(engine_, {doubling(128), "", {{"w", tensor({7, 8, 9})}}, {}, {}}, member_directory(dir, 2), {});
    for (const SessionMemory::Space& space : largest.memory().spaces) alone += space.arenas;
  }
  const uint64_t before = engine_.allocator_stats({}).current_bytes;
  SessionFamily family = SessionFamily::load(engine_, dir);
  const uint64_t held = engine_.allocator_stats({}).current_bytes - before;
  EXPECT_GE(held, alone);
  EXPECT_LE(held, alone + 3 * 64);  // and the variable, once
}

TEST_F(FamilyTest, TriesNeverWait) {
  SessionFamily family = SessionFamily::load(engine_, save(doublings(Fit::kPad, {2, 4})));
  const Floats small = counted(2, 1), large = counted(4, 5);
  for (int i = 0; i < 50; ++i) {
    std::optional<FamilyStep> first = family.try_submit(std::vector{input(small)});
    if (!first) continue;  // the other member had a step in flight
    if (std::optional<FamilyStep> second = family.try_submit(std::vector{input(large)})) expect_doubled(*second, large);
    expect_doubled(*first, small);
  }
  family.wait_all();
  ASSERT_TRUE(family.try_submit(std::vector{input(small)}).has_value());
}

TEST_F(FamilyTest, ThreadsTakeTurns) {
  SessionFamily family = SessionFamily::load(engine_, save(doublings(Fit::kSplit, {1, 3, 7})));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const Floats x = counted((t + i) % 7 + 1, static_cast<float>(100 * t + i));
        expect_doubled(family.submit(std::vector{input(x)}), x);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  family.wait_all();
  EXPECT_EQ(family.stats().in_flight, 0);
}

TEST_F(FamilyTest, CallersAreToldOfWholeCalls) {
  std::vector<std::pair<uint64_t, Shape>> told;
  SessionOptions options;
  options.on_output = [&](uint64_t step, const Status& status, const std::vector<OutputTensor>& outputs) {
    told.emplace_back(step, status.ok() ? outputs.at(0).type.shape : Shape{});
  };
  SessionFamily family = SessionFamily::load(engine_, save(doublings(Fit::kSplit, {2, 4})), options);
  for (const int64_t n : {4, 3, 4, 1}) expect_doubled(family.submit(std::vector{input(counted(n, 0))}), counted(n, 0));
  family.wait_all();
  EXPECT_EQ(told, (std::vector<std::pair<uint64_t, Shape>>{{0, {4, 3}}, {1, {3, 3}}, {2, {4, 3}}, {3, {1, 3}}}));
}

TEST_F(FamilyTest, ACallerIsToldOfItsWholeCall) {
  SessionFamily family = SessionFamily::load(engine_, save(doublings(Fit::kSplit, {2, 4})));
  std::vector<Floats> told;
  for (const int64_t n : {4, 3, 1}) {
    const Floats x = counted(n, 0);
    family.submit(std::vector{input(x)},
                  {.on_done = [&](const Status& status, const std::vector<OutputTensor>& outputs) {
                    EXPECT_TRUE(status.ok()) << status.message();
                    const auto* y = static_cast<const float*>(outputs.at(0).storage->data());
                    told.emplace_back(y, y + numel(outputs[0].type.shape));
                  }});
  }
  family.wait_all();
  ASSERT_EQ(told.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < told[i].size(); ++k) EXPECT_EQ(told[i][k], static_cast<float>(2 * k));
  EXPECT_EQ(told[0].size(), 12u);
  EXPECT_EQ(told[1].size(), 9u);
  EXPECT_EQ(told[2].size(), 3u);
}

TEST_F(FamilyTest, ItsPlansAreReadWithoutRunning) {
  const std::string dir = save(doublings(Fit::kPad, {2, 4, 8}));
  const api::Plan plan = api::Plan::load(dir);
  EXPECT_EQ(plan.name(), "doubling");
  ASSERT_EQ(plan.inputs().size(), 1u);
  EXPECT_EQ(plan.inputs()[0].str(), "x: float32(rows<=8, 3)");
  EXPECT_EQ(plan.outputs()[0].str(), "y: float32(rows<=8, 3)");
  EXPECT_EQ(plan.kernels(), 3);
  EXPECT_THAT(plan.actors(), ::testing::ElementsAre("0/feed", "0/net", "0/sink", "1/feed", "1/net", "1/sink", "2/feed",
                                                    "2/net", "2/sink"));
  EXPECT_EQ(plan.verify(), "");
  EXPECT_EQ(plan.memory_bytes(), SessionFamily::load(engine_, dir).ledger().total);
  EXPECT_LT(plan.memory_bytes(), 2 * api::Plan::load(member_directory(dir, 2)).memory_bytes());
  EXPECT_EQ(api::Plan::load(member_directory(dir, 2)).inputs()[0].str(), "x: float32(8, 3)");

  sluice_plan* of_c = nullptr;
  ASSERT_EQ(sluice_plan_load(dir.c_str(), &of_c), nullptr);
  sluice_port port = SLUICE_PORT_INIT;
  ASSERT_EQ(sluice_plan_input(of_c, 0, &port), nullptr);
  EXPECT_EQ(port.shape[0], 8);
  EXPECT_STREQ(port.dims[0], "rows");
  EXPECT_EQ(port.dims[1], nullptr);
  EXPECT_EQ(sluice_plan_memory_bytes(of_c), plan.memory_bytes());
  sluice_plan_destroy(of_c);

  fs::remove_all(member_directory(dir, 1));
  fs::copy(member_directory(dir, 2), member_directory(dir, 1), fs::copy_options::recursive);
  EXPECT_EQ(
      api::Plan::load(dir).verify(),
      "members/1: family 'doubling': member (4): input 'x' of the plan is float32(8, 3); the family says otherwise "
      "of 'x'");
  fs::remove_all(member_directory(dir, 1));
  EXPECT_THROW(api::Plan::load(dir), api::Error);
}

TEST_F(FamilyTest, APlanAloneIsAFamily) {
  save_plain(folder_.path());
  SessionFamily family = SessionFamily::load(engine_, folder_.path());
  EXPECT_TRUE(family.family().dims.empty());
  const Floats x = {1, 2, 3, 4};
  EXPECT_EQ(values(family.submit(std::vector{InputTensor{x.data(), PlanBuilder::f32({4})}}).outputs()[0]), x);
}

TEST_F(FamilyTest, BundlesComeBack) {
  FamilyBundle bundle = doublings(Fit::kPad, {2, 4});
  bundle.members[1].weights["w"] = tensor({1, 2, 3});  // of its own
  const FamilyBundle back = load_family_bundle(save(bundle), make_host_allocator());
  EXPECT_EQ(back.family, bundle.family);
  EXPECT_EQ(back.meta, bundle.meta);
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(back.members[m].graph_text, "graph text\n");
    const BundleTensor& w = back.members[m].weights.at("w");
    EXPECT_EQ(static_cast<const float*>(w.storage->data())[0], m == 0 ? 7 : 1);
  }
  save(doublings(Fit::kPad, {2, 4}));
  const FamilyBundle shared = load_family_bundle(folder_.path(), make_host_allocator());
  EXPECT_EQ(shared.members[0].weights.at("w").storage, shared.members[1].weights.at("w").storage);
}

TEST_F(FamilyTest, BrokenBundlesAreErrorsThatNameTheFile) {
  const auto error = [&] { return error_of([&] { SessionFamily::load(engine_, folder_.path()); }); };
  const std::string at = folder_.path() + "/";
  save(doublings(Fit::kPad, {2, 4}, true));
  EXPECT_EQ(error(),
            "value: " + at +
                "family.json: family 'doubling': its plans update variable 'w'; padding would change what becomes "
                "of it: give dim 'rows' fit=\"exact\"");
  save(doublings(Fit::kPad, {2, 4}));
  fs::copy_file(at + "members/0/plan.json", at + "members/1/plan.json", fs::copy_options::overwrite_existing);
  write("meta.json", R"({"by": "test"})");  // without a digest, which would find that first
  EXPECT_EQ(error(),
            "value: " + at +
                "family.json: family 'doubling': member (4): input 'x' of the plan is float32(2, 3); the family "
                "says otherwise of 'x'");
  for (const char* file : {"family.json", "meta.json", "weights.safetensors", "members/1/plan.json"}) {
    save(doublings(Fit::kPad, {2, 4}));
    write(file, "{");
    EXPECT_THAT(error(), HasSubstr(at + file)) << file;
    fs::remove(at + file);
    if (file != std::string("family.json")) {
      EXPECT_THAT(error(), HasSubstr(at + file)) << file;
    }
    fs::create_symlink("/etc/hostname", at + file);
    EXPECT_THAT(error(), HasSubstr(at + file + ": cannot be read: it is a symbolic link")) << file;
    fs::remove_all(folder_.path());
  }
  save(doublings(Fit::kPad, {2, 4}));
  fs::rename(at + "members/1", at + "elsewhere");
  fs::create_directory_symlink(at + "elsewhere", at + "members/1");
  EXPECT_THAT(error(), HasSubstr(at + "members/1: not a directory"));
}

TEST_F(FamilyTest, ThePublicApiTellsOfDimsAndTakesAllSizes) {
  save(doublings(Fit::kPad, {2, 8}));
  api::Engine engine;
  api::Session session = api::Session::load(engine, folder_.path());
  EXPECT_EQ(session.inputs()[0].str(), "x: float32(rows<=8, 3)");
  EXPECT_EQ(session.outputs()[0].dims, (std::vector<std::string>{"rows", ""}));
  const std::vector<api::Tensor> y = session.run({api::Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3})});
  EXPECT_EQ(y[0].shape(), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(y[0].data<float>()[8], 18);
  session.wait_all();
  EXPECT_EQ(session.counters().finished, 1u);
}

TEST_F(FamilyTest, TheCApiTellsOfDimsAndTakesAllSizes) {
  save(doublings(Fit::kPad, {2, 8}));
  sluice_engine* engine = nullptr;
  sluice_session* session = nullptr;
  ASSERT_EQ(sluice_engine_create(nullptr, &engine), nullptr);
  ASSERT_EQ(sluice_session_load(engine, folder_.path().c_str(), nullptr, &session), nullptr);
  sluice_port port = SLUICE_PORT_INIT;
  ASSERT_EQ(sluice_session_input(session, 0, &port), nullptr);
  EXPECT_EQ(port.shape[0], 8);
  EXPECT_STREQ(port.dims[0], "rows");
  EXPECT_EQ(port.dims[1], nullptr);
  // A caller that was compiled before there were dims.
  const char* const* untouched = reinterpret_cast<const char* const*>(&engine);
  port.size = offsetof(sluice_port, dims);
  port.dims = untouched;
  ASSERT_EQ(sluice_session_output(session, 0, &port), nullptr);
  EXPECT_STREQ(port.name, "y");
  EXPECT_EQ(port.dims, untouched);
  const int64_t shape[] = {3, 3};
  const float values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  sluice_tensor *x = nullptr, *y = nullptr;
  ASSERT_EQ(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 2, values, sizeof values, &x), nullptr);
  ASSERT_EQ(sluice_session_run(session, &x, 1, &y, 1), nullptr);
  EXPECT_EQ(sluice_tensor_shape(y)[0], 3);
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y))[8], 18);
  sluice_tensor_destroy(x);
  sluice_tensor_destroy(y);
  sluice_session_destroy(session);
  sluice_engine_destroy(engine);
}

TEST_F(FamilyTest, TracesTellOfCallsByTheNumbersAndTagsTheirCallersGave) {
  const std::string dir = save(doublings(Fit::kSplit, {1, 2, 4}));
  api::Engine engine;
  api::Session session = api::Session::load(engine, dir);
  const auto rows = [](int64_t n) {
    return std::vector{api::Tensor::from<float>(std::vector<float>(static_cast<size_t>(n) * 3, 1.0f), {n, 3})};
  };
  session.run(rows(3));  // before tracing began
  session.set_trace(true);
  session.submit(rows(4), {.tag = "whole"}).get();
  session.submit(rows(3), {.tag = "two parts"}).get();  // of two rows, and of one
  std::map<uint64_t, api::Trace::Step> over;
  std::map<uint64_t, std::multiset<std::pair<int, std::string>>> kernels;  // by step: of which plan
  std::map<uint64_t, std::multiset<std::string>> firings;
  std::string chrome;
  int64_t before_ns = 0;
  while (over.size() < 2) {  // the sinks' last firings may still be under way
    const api::Trace trace = session.take_trace();
    if (trace.events.size() > 1) chrome += trace.chrome_json();
    ASSERT_EQ(trace.plans.size(), 3u);
    EXPECT_EQ(trace.lost, 0u);
    if (before_ns == 0) before_ns = trace.begin_ns;
    EXPECT_EQ(trace.begin_ns, before_ns);
    for (const api::TraceEvent& e : trace.events) {
      EXPECT_LE(0, e.begin_ns);
      EXPECT_LE(e.begin_ns, e.end_ns);
      if (e.actor < 0) continue;
      const auto& plan = trace.plans.at(static_cast<size_t>(e.plan));
      EXPECT_EQ(over.count(e.step), 0u) << "it was over";
      if (e.kind == api::TraceEvent::Kind::kKernel)
        kernels[e.step].emplace(e.plan, plan.kernels.at(static_cast<size_t>(e.kernel)));
      if (e.kind == api::TraceEvent::Kind::kFiring)
        firings[e.step].insert(plan.actors.at(static_cast<size_t>(e.actor)));
    }
    for (const api::Trace::Step& step : trace.steps) {
      if (!step.over) continue;
      EXPECT_TRUE(over.emplace(step.step, step).second) << "told twice";
    }
  }
  EXPECT_EQ(over.at(1).tag, "whole");
  EXPECT_EQ(over.at(2).tag, "two parts");
  const std::string add = kernels.at(1).begin()->second;
  EXPECT_EQ(kernels.size(), 2u) << "nothing of the step before";
  EXPECT_THAT(kernels.at(1), ::testing::ElementsAre(std::pair(2, add)));
  EXPECT_THAT(kernels.at(2), ::testing::ElementsAre(std::pair(0, add), std::pair(1, add)));
  EXPECT_THAT(firings.at(1), ::testing::ElementsAre("feed", "net", "sink"));
  EXPECT_THAT(firings.at(2), ::testing::ElementsAre("feed", "feed", "net", "net", "sink", "sink"));
  EXPECT_THAT(chrome, HasSubstr("\"name\":\"1/net\",\"cat\":\"firing\",\"args\":{\"step\":2,\"tag\":\"two parts\"}"));
  session.set_trace(false);
  session.run(rows(1));
  session.wait_all();
  for (const api::TraceEvent& e : session.take_trace().events) EXPECT_LT(e.actor, 0);
}

}  // namespace
}  // namespace sluice::test
