// Results as long as a step makes them: the runtime, the public C++ API and the C API.
#include "plan/extents.h"

#include "include/sluice/sluice.h"
#include "include/sluice/sluice.hpp"
#include "kernels/host_args.h"
#include "runtime/bundle_fixture.h"
#include "runtime/family/family.h"
#include "runtime/family/family_bundle.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kRows = 3, kColumns = 4;

TensorSpec int64_scalar() { return TensorSpec::contiguous({DType::kInt64, {}}); }
View scalar(int reg) { return {BaseKind::kRegister, reg, 0, 0, int64_scalar()}; }

// y = copy(x), float32(3, 4), of which a step has `n` rows or columns, as its other input says; z is whole.
Plan cut_plan(int axis, int64_t rows = kRows) {
  Plans b("cut");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const auto reg = [&](const char* name, int from, int to, uint64_t bytes) {
    return b.reg(name, from, {to}, {.quota = 2, .bytes = bytes});
  };
  const Shape shape{rows, kColumns};
  const auto bytes = static_cast<uint64_t>(numel(shape)) * 4;
  const int x = reg("x", feed, net, bytes), n = reg("n", feed, net, 8);
  const int y = reg("y", net, sink, bytes), e = reg("e", net, sink, 8), z = reg("z", net, sink, bytes);
  const auto all = [&](int r) { return b.of_reg(r, shape); };
  b.run(net, "copy", {all(x)}, {all(y)});
  b.run(net, "copy", {scalar(n)}, {scalar(e)});
  b.run(net, "copy", {all(x)}, {all(z)});
  b.input("x", x, b.f32(shape));
  b.input("n", n, int64_scalar());
  b.output("rows of y", scalar(e), ExtentOf{"y", axis, "rows"});
  b.output("y", all(y));
  b.output("z", all(z));
  return b.build();
}

Floats counting() {
  Floats x(kRows * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  return x;
}

StepHandle submit_cut(Session& session, const Floats& x, int64_t n) {
  const InputTensor inputs[] = {{x.data(), PlanBuilder::f32({kRows, kColumns})}, {&n, int64_scalar()}};
  return session.submit(inputs);
}

class Cuts : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int axis() const { return std::get<0>(GetParam()); }
  // Rows or columns of counting() there are.
  Floats kept(int64_t n) const {
    Floats y;
    for (int64_t r = 0; r < (axis() == 0 ? n : kRows); ++r)
      for (int64_t c = 0; c < (axis() == 1 ? n : kColumns); ++c) y.push_back(static_cast<float>(r * kColumns + c));
    return y;
  }
  Shape shape(int64_t n) const { return axis() == 0 ? Shape{n, kColumns} : Shape{kRows, n}; }
};

TEST_P(Cuts, ResultsAreAsLongAsTheStepMakesThem) {
  Engine engine({.cores = 1});
  std::vector<std::pair<Shape, Floats>> told;
  SessionOptions options;
  options.zero_copy = std::get<1>(GetParam());
  options.on_output = [&](uint64_t, const Status& status, const std::vector<OutputTensor>& outputs) {
    if (status.ok()) told.emplace_back(outputs.at(0).type.shape, values(outputs[0]));
  };
  Session session = Session::load(engine, cut_plan(axis()), {}, options);
  ASSERT_EQ(session.outputs().size(), 2u);
  EXPECT_EQ(session.outputs()[0].name, "y");
  EXPECT_EQ(session.outputs()[0].type.shape, Shape({kRows, kColumns}));
  const Floats x = counting();
  const int64_t sizes[] = {1, 3, 0, 2, 3, 1};
  for (const int64_t n : sizes) {
    StepHandle step = submit_cut(session, x, n);
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(step.outputs().size(), 2u);
      EXPECT_EQ(step.outputs()[0].type.shape, shape(n));
      EXPECT_EQ(values(step.outputs()[0]), kept(n));
      EXPECT_EQ(values(step.outputs()[1]), x);
    }
  }
  session.wait_all();
  ASSERT_EQ(told.size(), std::size(sizes));
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].first, shape(sizes[i]));
    EXPECT_EQ(told[i].second, kept(sizes[i]));
  }
}

TEST_P(Cuts, WhatCannotBeFailsTheStepAlone) {
  Engine engine({.cores = 1});
  SessionOptions options;
  options.zero_copy = std::get<1>(GetParam());
  Session session = Session::load(engine, cut_plan(axis()), {}, options);
  for (const int64_t n : {int64_t{-1}, int64_t{5}}) {
    StepHandle bad = submit_cut(session, counting(), n);
    EXPECT_EQ(bad.wait().message(),
              fmt::format("session 'cut': output 'y': dim 'rows' is {} long; must be 0 to {}", n, axis() == 0 ? 3 : 4));
    EXPECT_EQ(values(submit_cut(session, counting(), 2).outputs()[0]), kept(2));
  }
}

INSTANTIATE_TEST_SUITE_P(Axes, Cuts, ::testing::Combine(::testing::Values(0, 1), ::testing::Bool()));

TEST(Extents, MembersOfAFamilyCutAlongOtherAxes) {
  const TestFolder folder("sluice_extents_family_");
  const FamilyAxis batch{0, 0}, columns{FamilyAxis::kFixed, kColumns};
  for (const Fit fit : {Fit::kPad, Fit::kSplit}) {
    FamilyBundle bundle{{"cut",
                         {{"batch", 1, 4, fit}},
                         {{"x", DType::kFloat32, {batch, columns}}, {"n", DType::kInt64, {}}},
                         {{"y", DType::kFloat32, {batch, columns}}, {"z", DType::kFloat32, {batch, columns}}},
                         {{2}, {4}}},
                        {},
                        {{"by", "test"}}};
    for (const int64_t size : {2, 4}) bundle.members.push_back({cut_plan(1, size), "graph text\n", {}, {}, {}});
    save_family_bundle(folder.path(), bundle);
    Engine engine({.cores = 1});
    SessionFamily family = SessionFamily::load(engine, folder.path());
    ASSERT_EQ(family.varying_outputs().size(), 1u);
    EXPECT_EQ(family.varying_outputs()[0].dim, "rows");
    for (const int64_t size : {3, 2, 1}) {
      const Floats x = counting();
      const int64_t n = 2;
      const InputTensor inputs[] = {{x.data(), PlanBuilder::f32({size, kColumns})}, {&n, int64_scalar()}};
      FamilyStep step = family.submit(inputs);
      ASSERT_EQ(step.outputs().size(), 2u);
      EXPECT_EQ(step.outputs()[0].type.shape, Shape({size, n}));
      for (int64_t i = 0; i < size * n; ++i)
        EXPECT_EQ(values(step.outputs()[0])[static_cast<size_t>(i)], static_cast<float>(i / n * kColumns + i % n));
      EXPECT_EQ(step.outputs()[1].type.shape, Shape({size, kColumns}));
    }
  }
}

TEST(Extents, ABundleGivesTheTrueShapesToCppAndC) {
  const TestFolder folder("sluice_extents_");
  save_bundle(folder.path(), {cut_plan(1), "graph text\n", {}, {}});
  EXPECT_EQ(api::Plan::load(folder.path()).outputs()[0].str(), "y: float32(3, rows<=4)");

  api::Engine engine{{.cores = 1}};
  api::Session session = api::Session::load(engine, folder.path());
  ASSERT_EQ(session.outputs().size(), 2u);
  EXPECT_EQ(session.outputs()[0].str(), "y: float32(3, rows<=4)");
  EXPECT_THAT(session.outputs()[0].dims, ElementsAre("", "rows"));
  EXPECT_THAT(session.outputs()[1].dims, IsEmpty());
  const api::Tensor x = api::Tensor::from<float>(counting(), {kRows, kColumns});
  for (const int64_t n : {2, 0, 4}) {
    const std::vector<api::Tensor> y = session.run({x, api::Tensor::from<int64_t>({n}, {})});
    EXPECT_THAT(y[0].shape(), ElementsAre(kRows, n));
    EXPECT_EQ(y[0].bytes(), static_cast<size_t>(kRows * n) * 4);
    EXPECT_EQ(y[1].size(), kRows * kColumns);
    for (int64_t i = 0; i < kRows * n; ++i)
      EXPECT_EQ(y[0].data<float>()[i], static_cast<float>(i / n * kColumns + i % n));
  }

  const auto ok = [](sluice_status* status) {
    EXPECT_STREQ(sluice_status_message(status), "");
    sluice_status_destroy(status);
  };
  sluice_engine* c_engine = nullptr;
  sluice_engine_options options = SLUICE_ENGINE_OPTIONS_INIT;
  options.cores = 1;
  ok(sluice_engine_create(&options, &c_engine));
  sluice_session* c_session = nullptr;
  ok(sluice_session_load(c_engine, folder.path().c_str(), nullptr, &c_session));
  sluice_port port = SLUICE_PORT_INIT;
  ok(sluice_session_output(c_session, 0, &port));
  EXPECT_STREQ(port.dims[1], "rows");
  EXPECT_EQ(port.dims[0], nullptr);
  const int64_t shape[] = {kRows, kColumns}, n = 2;
  const Floats values = counting();
  sluice_tensor *inputs[2] = {}, *outputs[2] = {};
  ok(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 2, values.data(), values.size() * 4, &inputs[0]));
  ok(sluice_tensor_from_data(SLUICE_INT64, nullptr, 0, &n, sizeof n, &inputs[1]));
  ok(sluice_session_run(c_session, inputs, 2, outputs, 2));
  EXPECT_EQ(sluice_tensor_shape(outputs[0])[1], 2);
  EXPECT_EQ(static_cast<const float*>(sluice_tensor_data(outputs[0]))[2], 4);
  for (sluice_tensor* tensor : {inputs[0], inputs[1], outputs[0], outputs[1]}) sluice_tensor_destroy(tensor);
  sluice_session_destroy(c_session);
  sluice_engine_destroy(c_engine);
}

// A source in a plan of host functions: `steps` rows of it, one after another; `doubled` gets what there is.
TEST(Extents, HostFunctionsSayAndSeeHowLongTheirArraysAre) {
  Plans b("lengths");
  b.stream("cpu:0", StreamKind::kHost, 0);
  const int source = b.source("source"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", source, {net}, {.quota = 1, .bytes = 16});
  const int n = b.reg("n", source, {net, sink}, {.quota = 2, .bytes = 8});
  const int y = b.reg("y", net, {sink}, {.quota = 1, .bytes = 16});
  const TensorTypes outputs = {{DType::kFloat32, {kN}}};
  b.run(source, "host_function", {}, {b.r(x), scalar(n)}, 0,
        {{"name", std::string("rows")},
         {"outputs", outputs},
         {"dims", Strings{"rows"}},
         {"input_dims", Ints{}},
         {"output_dims", Ints{0, 0, 0}}});
  b.run(net, "host_function", {b.r(x), scalar(n)}, {b.r(y)}, 0,
        {{"name", std::string("fill")},
         {"outputs", outputs},
         {"dims", Strings{"rows"}},
         {"input_dims", Ints{0, 0, 0}},
         {"output_dims", Ints{0, 0, 0}}});
  b.output("y", b.r(y));
  b.output("rows of y", scalar(n), ExtentOf{"y", 0, "rows"});
  Engine engine({.cores = 1});
  HostFunctions functions;
  std::vector<int64_t> seen;
  Floats beyond;
  int64_t next = 0;
  functions["rows"] = [&](const KernelArgs& args, const std::vector<TensorSpec>&,
                          const std::vector<TensorSpec>& outputs) {
    ASSERT_EQ(outputs.size(), 1u);
    for (int64_t i = 0; i < kN; ++i) static_cast<float*>(args.outputs[0])[i] = 7;  // also what is beyond
    host_args(args).extents[0] = next;
  };
  functions["fill"] = [&](const KernelArgs& args, const std::vector<TensorSpec>& inputs,
                          const std::vector<TensorSpec>&) {
    seen.push_back(inputs.at(0).shape[0]);
    const auto* const in = static_cast<const float*>(args.inputs[0]);
    beyond.assign(in + inputs[0].shape[0], in + kN);
    for (int64_t i = 0; i < kN; ++i) static_cast<float*>(args.outputs[0])[i] = 9;
  };
  Session session = Session::load(engine, b.build(), {}, {.functions = functions});
  for (next = 0; next <= kN; ++next) {
    StepHandle step = session.submit({});
    EXPECT_EQ(values(step.outputs()[0]), Floats(static_cast<size_t>(next), 9));
    EXPECT_EQ(beyond, Floats(static_cast<size_t>(kN - next), 0));
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
  next = kN + 1;
  EXPECT_THAT(session.submit({}).wait().message(),
              HasSubstr("host function 'rows': dim 'rows' is 5 long; must be 0 to 4"));
}

}  // namespace
}  // namespace sluice::test
