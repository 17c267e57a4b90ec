// Ops and kernels from shared libraries: called, differentiated, traced, saved, loaded, and wrong in every way.
#include "tensor/extension.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "graph/executor.h"
#include "graph/graph.h"
#include "graph/tape.h"
#include "include/sluice/compile.h"
#include "include/sluice/extension.h"
#include "include/sluice/sluice.h"
#include "include/sluice/sluice.hpp"
#include "plan/json/json.h"
#include "runtime/bundle/bundle.h"
#include "runtime/session/engine.h"
#include "tensor/eager.h"
#include "tensor/session/graph_session.h"
#include "tensor/tensor.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

std::string fault(int n) { return std::string(FAULTY_OPS) + std::to_string(n) + ".so"; }

class ExtensionTest : public ::testing::Test {
 protected:
  ExtensionTest() : dir_(fs::path(::testing::TempDir()) / ("sluice_extension_" + std::to_string(getpid()))) {}
  ~ExtensionTest() override { fs::remove_all(dir_); }
  const OpDef& op(const char* name) { return eager_.ops().get(name); }
  Value faulty(const char* at, const Value& x) { return call1(op("faulty"), {x}, {std::string(at)}); }

  Engine engine_{EngineOptions{.cores = 1}};
  EagerExecutor eager_{engine_};
  ExecutorScope scope_{eager_};
  fs::path dir_;
};

// The gradient of the sum of y.
Value gradient(const Value& y, const Value& x) {
  const Value ones = Tensor::full(y.type(), 1);
  return grad({&y, 1}, {&x, 1}, {&ones, 1})[0];
}

float at(const Value& v, int i) { return static_cast<const float*>(Tensor(v).read())[i]; }

TEST_F(ExtensionTest, OpsAreCalledAndDifferentiated) {
  EXPECT_EQ(load_extension(eager_, EXAMPLE_OPS).size(), 2u);
  const float data[] = {-1, 0, 3};
  const Tensor x = Tensor::from_host({DType::kFloat32, {3}}, data);
  x.set_requires_grad(true);
  const Value y = call1(op("scaled_softsign"), {x}, {2.0});
  EXPECT_EQ(at(y, 0), -1);
  EXPECT_EQ(at(y, 2), 1.5f);
  const Value d = call1(op("squared_distance"), {y, Tensor::zeros({DType::kFloat32, {3}})});
  EXPECT_EQ(at(d, 2), 2.25f);
  const Value slope = gradient(y, x);
  EXPECT_EQ(at(slope, 0), 0.5f);    // 2 / (1 + 1)^2
  EXPECT_EQ(at(slope, 2), 0.125f);  // 2 / (1 + 3)^2
}

TEST_F(ExtensionTest, LoadingAgainChangesNothing) {
  const auto first = load_extension(eager_, EXAMPLE_OPS);
  EXPECT_EQ(load_extension(eager_, EXAMPLE_OPS), first);
  EXPECT_EQ(engine_.extensions().size(), 1u);
  Engine other;  // an engine has what was loaded into it, and nothing else
  EXPECT_TRUE(other.extensions().empty());
}

// fault(8) is right: its kernel of relu negates besides, takes float32 alone, and leaves other types to the built-in
// one.
TEST_F(ExtensionTest, AKernelMayTakeTheBuiltInOnesPlace) {
  const auto relu = [&](DType dtype) { return Tensor(call1(op("relu"), {Tensor::full({dtype, {4}}, 3)})); };
  EXPECT_EQ(at(relu(DType::kFloat32), 3), 3);
  engine_.load_extension(fault(8));
  EXPECT_NE(eager_.ops().find("relu"), nullptr);
  EXPECT_EQ(at(relu(DType::kFloat32), 3), -3);
  EXPECT_EQ(static_cast<const double*>(relu(DType::kFloat64).read())[3], 3);
  // Planned as well, on both devices.
  TraceScope trace(eager_, "g");
  const Tensor x = trace.add_input("x", {DType::kFloat32, {4}});
  Value there;
  {
    graph::Placement placement;
    placement.device = DeviceId{.kind = DeviceKind::kSim};
    const PlacementScope scope(placement);
    there = call1(op("relu"), {x});
  }
  GraphSession session(eager_, trace.finish({{"here", call1(op("relu"), {x})}, {"there", there}}));
  const auto y = session.call({Tensor::full({DType::kFloat32, {4}}, 2)});
  EXPECT_EQ(at(y[0], 3), -2);
  EXPECT_EQ(at(y[1], 3), -2);
}

TEST_F(ExtensionTest, LibrariesThatAreWrongAreRefused) {
  EXPECT_TRUE(error_of([&] {
                load_extension(eager_, "/no/such.so");
              }).starts_with("extension '/no/such.so': cannot be loaded: "));
  EXPECT_EQ(error_of([&] { load_extension(eager_, fault(1)); }),
            "extension '" + fault(1) + "': has no function 'sluice_extension_abi'; it must define SLUICE_EXTENSION");
  EXPECT_EQ(error_of([&] { load_extension(eager_, fault(2)); }),
            "extension '" + fault(2) + "': was made for extension interface '0-elsewhere'; this Sluice has '" +
                SLUICE_EXTENSION_ABI + "': build it again with its headers");
  EXPECT_EQ(error_of([&] { load_extension(eager_, fault(3)); }),
            "extension 'taken': op 'relu': its name is that of a built-in op; give it another");
  EXPECT_EQ(error_of([&] { engine_.load_extension(fault(3)); }),
            "extension 'taken': 'relu' has a kernel on cpu already; the name of a new op must be new");
  EXPECT_EQ(error_of([&] { load_extension(eager_, fault(4)); }), "extension '" + fault(4) + "': no licence");
  EXPECT_EQ(error_of([&] { load_extension(eager_, fault(5)); }),
            "extension '" + fault(5) +
                "': describes itself as '' version ''; both must be given, the name in letters, digits and '_'");
  EXPECT_EQ(error_of([&] { load_extension(eager_, fault(6)); }),
            "extension '" + fault(6) +
                "': op 'two words': not a name; must be letters, digits and '_', beginning with a letter");
  EXPECT_EQ(error_of([&] { load_extension(eager_, fault(7)); }),
            "extension 'kernels': a kernel for 'no_such_op': no built-in op of that name has one to replace; give new "
            "ops by add_op()");
  // Refused as a whole: the good op beside the bad one is not there.
  EXPECT_EQ(eager_.ops().find("good"), nullptr);
  EXPECT_TRUE(engine_.extensions().empty());
}

// MPP-01: a graph as text, with actors of ops that a library registers by its macro, and a part, `squared_distance`,
// that is defined once as a graph of other ops and stands in the plan as often as it is named.
TEST_F(ExtensionTest, AGraphInTextHasRegisteredActorsAndReusesItsParts) {
  constexpr const char* kText = R"(graph "configured" {
  %0 = input "a" : float32(2,)
  %1 = input "b" : float32(2,)
  %2 = scaled_softsign(%0) {slope = 2.0} : float32(2,)
  %3 = squared_distance(%2, %1) : float32(2,)
  %4 = squared_distance(%3, %0) : float32(2,)
  output "first" = %3
  output "second" = %4
}
)";
  api::Engine engine({.cores = 1});
  engine.load_extension(EXAMPLE_OPS);
  api::compile(engine, kText, {}, dir_.string(), {.one_actor_per_op = true, .disabled_passes = {"fuse_elementwise"}});
  const api::Plan plan = api::Plan::load(dir_.string());
  std::map<std::string, int> kernels;
  for (const plan::Kernel& kernel : plan::load_plan(dir_.string()).kernels) ++kernels[kernel.op];
  EXPECT_EQ(kernels["scaled_softsign"], 1);
  EXPECT_EQ(kernels["sub"], 2) << "once for each use of the part";
  EXPECT_EQ(kernels["mul"], 2);
  const std::vector<std::string> names = plan.actors();
  EXPECT_EQ(std::ranges::count_if(names, [](const std::string& name) { return name.find("softsign") != name.npos; }),
            1);
  api::Session session = api::Session::load(engine, dir_.string());
  const auto results = session.run({api::Tensor::from<float>({1, 3}, {2}), api::Tensor::from<float>({0, 1}, {2})});
  const float *first = results[0].data<float>(), *second = results[1].data<float>();
  EXPECT_FLOAT_EQ(first[0], 1);  // 2 * 1 / (1 + 1) = 1, and (1 - 0)^2
  EXPECT_FLOAT_EQ(first[1], 0.25f);
  EXPECT_FLOAT_EQ(second[0], 0);
  EXPECT_FLOAT_EQ(second[1], 2.75f * 2.75f);
  // A name that is not registered, and a text that is wrong, say where.
  std::string unknown = kText;
  unknown.replace(unknown.find("scaled_softsign"), 15, "no_such_actor");
  EXPECT_NE(error_of([&] { api::compile(engine, unknown, {}, dir_.string()); }).find("no_such_actor"),
            std::string::npos);
}

TEST_F(ExtensionTest, WhatAnOpThrowsReachesTheCaller) {
  load_extension(eager_, fault(0));
  const float one = 1;
  const Tensor x = Tensor::from_host({DType::kFloat32, {1}}, &one);
  x.set_requires_grad(true);
  const std::pair<const char*, const char*> calls[] = {
      {"infer", "faulty: x is not liked"},
      {"infer_type", "faulty: x is of no type"},
      {"infer_int", "faulty: threw something that is no std::exception; derive from that"},
      {"attribute", "faulty: parameter 'at' has another type"},
      {"count", "faulty: infer gave 0 outputs; its definition says 1"},
      {"dtype", "faulty: infer gave dtype 77; there are 12"},
      {"prepare", "faulty: not on a Friday"},
      {"null", "faulty: prepare() gave no kernel; it must give one, or throw"},
      {"run", "faulty: kernel is tired"},
      {"run_int", "faulty: threw something that is no std::exception; derive from that"},
  };
  for (const auto& [place, message] : calls) EXPECT_EQ(error_of([&] { faulty(place, x); }), message) << place;
  EXPECT_TRUE(error_of([&] { faulty("shape", x); }).starts_with("faulty: ")) << error_of([&] { faulty("shape", x); });
  const std::pair<const char*, const char*> gradient_of[] = {
      {"grad", "faulty: no slope"},
      {"grad_count", "faulty: gradient() gave 0 gradients; must be one per input, 1"},
      {"grad_type", "faulty: gradient() gave int64() for input 0; must be float32(1,), as the input"},
      {"grad_symbol", "symbol 12345 is none of this call's; there are "},
      {"grad_op", "ops: unknown op: 'no_such_op'"},
  };
  for (const auto& [place, message] : gradient_of) {
    const std::string got = error_of([&] {
      const Value y = faulty(place, x);
      gradient(y, x);
    });
    EXPECT_NE(got.find(message), std::string::npos) << place << ": " << got;
  }
  EXPECT_EQ(at(faulty("", x), 0), 1);  // and nothing is broken
}

// Text to a bundle, the bundle on an engine with and without the library, planned anew, and a kernel that fails.
TEST_F(ExtensionTest, BundlesSayWhichExtensionTheyNeed) {
  const std::string path = (dir_ / "bundle").string(), anew = (dir_ / "anew").string();
  const std::string graph = R"(graph "g" {
  %0 = input "x" : float32(3,)
  %1 = scaled_softsign(%0) {slope = 2.0} : float32(3,)
  output "y" = %1
}
)";
  {
    api::Engine engine;
    EXPECT_NE(error_of([&] { api::compile(engine, graph, {}, path); }).find("unknown op: 'scaled_softsign'"),
              std::string::npos);
    engine.load_extension(EXAMPLE_OPS);
    api::compile(engine, graph, {}, path);
    api::CompileOptions options;
    options.one_actor_per_op = true;
    options.steps_in_flight = 3;
    api::replan(engine, path, anew, options);
    for (const std::string& bundle : {path, anew}) {
      auto session = api::Session::load(engine, bundle);
      EXPECT_EQ(session.run({api::Tensor::from<float>({-1, 0, 3}, {3})})[0].data<float>()[2], 1.5f);
    }
    EXPECT_NE(load_bundle(path).plan.registers.size(), 0u);
  }
  EXPECT_EQ(load_bundle(anew).meta.at("extension.scaled_softsign"), "example_ops 1.0");
  api::Engine plain;
  const std::string missing = "bundle '" + path +
                              "': op 'scaled_softsign' is of extension 'example_ops 1.0', which is not loaded; load "
                              "its library first (Engine::load_extension, sluice.ops.load_library)";
  EXPECT_EQ(error_of([&] { api::Session::load(plain, path); }), missing);
  EXPECT_EQ(error_of([&] { api::replan(plain, path, anew); }), missing);
}

// In C as in C++: get, run, wait_all, and submit at capacity.
TEST_F(ExtensionTest, WaitsOfTheCApiForAStuckKernelHaveTheirLimit) {
  const std::string path = (dir_ / "bundle").string();
  {
    api::Engine engine;
    engine.load_extension(fault(0));
    api::compile(engine, R"(graph "g" {
  %0 = input "x" : int64(1,)
  %1 = faulty(%0) {at = "wait"} : int64(1,)
  output "y" = %1
}
)",
                 {}, path);
  }
  const auto kind_of = [](sluice_status* status) {
    const sluice_kind kind = sluice_status_kind(status);
    EXPECT_TRUE(kind != SLUICE_ERROR_TIMEOUT ||
                std::string(sluice_status_message(status)).find("actor '") != std::string::npos);
    sluice_status_destroy(status);
    return kind;
  };
  sluice_engine* engine = nullptr;
  ASSERT_EQ(kind_of(sluice_engine_create(nullptr, &engine)), SLUICE_OK);
  ASSERT_EQ(kind_of(sluice_engine_load_extension(engine, fault(0).c_str())), SLUICE_OK);
  sluice_session_options options = SLUICE_SESSION_OPTIONS_INIT;
  options.submit_timeout_ms = options.wait_timeout_ms = 20;
  sluice_session* session = nullptr;
  ASSERT_EQ(kind_of(sluice_session_load(engine, path.c_str(), &options, &session)), SLUICE_OK);
  std::atomic<bool> go{false};
  const int64_t shape = 1, address = reinterpret_cast<int64_t>(&go);
  sluice_tensor *x = nullptr, *y = nullptr;
  ASSERT_EQ(kind_of(sluice_tensor_from_data(SLUICE_INT64, &shape, 1, &address, sizeof address, &x)), SLUICE_OK);
  std::vector<sluice_step*> steps;
  sluice_kind submitted = SLUICE_OK;
  while (submitted == SLUICE_OK) {
    steps.push_back(nullptr);
    submitted = kind_of(sluice_session_submit(session, &x, 1, &steps.back()));
  }
  EXPECT_EQ(submitted, SLUICE_ERROR_TIMEOUT);
  EXPECT_EQ(kind_of(sluice_session_run(session, &x, 1, &y, 1)), SLUICE_ERROR_TIMEOUT);
  EXPECT_EQ(kind_of(sluice_session_wait_all(session)), SLUICE_ERROR_TIMEOUT);
  EXPECT_EQ(kind_of(sluice_step_wait(steps[0], -1)), SLUICE_ERROR_TIMEOUT);
  EXPECT_EQ(kind_of(sluice_step_wait(steps[0], 5)), SLUICE_ERROR_TIMEOUT);
  EXPECT_EQ(kind_of(sluice_step_outputs(steps[0], &y, 1)), SLUICE_ERROR_TIMEOUT);
  go = true;
  EXPECT_EQ(kind_of(sluice_step_wait(steps[0], 60000)), SLUICE_OK);
  for (sluice_step* step : steps) sluice_step_destroy(step);
  sluice_tensor_destroy(x);
  sluice_session_destroy(session);
  sluice_engine_destroy(engine);
}

TEST_F(ExtensionTest, AKernelThatThrowsFailsItsStepOnly) {
  const std::string path = (dir_ / "bundle").string();
  api::Engine engine;
  engine.load_extension(fault(0));
  api::compile(engine, R"(graph "g" {
  %0 = input "x" : float32(1,)
  %1 = faulty(%0) {at = "run"} : float32(1,)
  output "y" = %1
}
)",
               {}, path);
  auto session = api::Session::load(engine, path);
  const api::Tensor x = api::Tensor::from<float>({1}, {1});
  for (int i = 0; i < 2; ++i)
    EXPECT_NE(error_of([&] { session.run({x}); }).find("faulty: kernel is tired"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
