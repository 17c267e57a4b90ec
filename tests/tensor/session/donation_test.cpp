// Inputs whose memory a call takes for good.
#include "tensor/session/donation.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "include/sluice/compile.h"
#include "include/sluice/sluice.hpp"
#include "tensor/session/graph_session.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kN = 1024;  // floats

class DonationTest : public TensorTest {
 protected:
  TensorType row{DType::kFloat32, {kN}};

  // params - 0.5 * grad
  std::unique_ptr<GraphSession> step(std::vector<std::string> donated = {"params"}) {
    TraceScope trace(eager, "update");
    const Tensor params = trace.add_input("params", row), grad = trace.add_input("grad", row);
    const Value next = ops::sub(params, ops::mul(grad, 0.5));
    GraphSessionOptions options;
    options.compile.name = "update";
    options.compile.donated = std::move(donated);
    return std::make_unique<GraphSession>(eager, trace.finish({{"next", next}}), options);
  }
  static Tensor row_of(float x) { return vec(std::vector<float>(kN, x)); }
  static const void* address(const Tensor& t) { return static_cast<EagerImpl*>(t.impl())->data(); }
};

TEST_F(DonationTest, AResultHasTheMemoryOfAnInput) {
  const auto session = step();
  Tensor params = row_of(100);
  const Tensor grad = row_of(1);
  const void* const memory = address(params);
  for (int i = 0; i < 20; ++i) {
    params = session->call({params, grad})[0];
    EXPECT_EQ(address(params), memory);
  }
  EXPECT_EQ(values(params), std::vector<float>(kN, 90));
  const SessionStats stats = session->session().stats();
  EXPECT_EQ(stats.input_copies, 20u) << "grad, which is not donated";
  EXPECT_EQ(stats.output_copies, 0u);
}

TEST_F(DonationTest, AllThatSharesItsMemoryHasNone) {
  const auto session = step();
  const Tensor params = row_of(1), whole = Tensor(ops::reshape(params, {kN / 2, 2})), alias = params.detach();
  const Tensor part = ops::slice_axis(params, 0, 0, 2);
  const Tensor next = session->call({params, row_of(0)})[0];
  const std::string error =
      "tensor: float32(1024,) was donated to graph 'update' as argument 'params'; clone() it before the call where it "
      "is needed afterwards";
  for (const Tensor& lost : {params, whole, alias, part}) {
    EXPECT_THAT(error_of([&] { lost.read(); }), HasSubstr(error));
    EXPECT_THAT(error_of([&] { lost.write(); }), HasSubstr(error));
    EXPECT_THAT(error_of([&] { lost.detach(); }), HasSubstr(error));
    EXPECT_THAT(error_of([&] { ops::neg(lost); }), HasSubstr(error));
    EXPECT_THAT(error_of([&] { session->call({lost, row_of(0)}); }), HasSubstr(error));
    EXPECT_THAT(error_of([&] { session->call({row_of(0), lost}); }), HasSubstr(error));
  }
  EXPECT_EQ(values(next), std::vector<float>(kN, 1));
}

TEST_F(DonationTest, ACallThatThrowsHasTakenNothing) {
  const auto session = step();
  const Tensor params = row_of(3), grad = row_of(1);
  const auto kept = [&] { return values(params) == std::vector<float>(kN, 3); };
  EXPECT_NE(error_of([&] { session->call({params, vec({1, 2})}); }), "");
  EXPECT_TRUE(kept());
  EXPECT_NE(error_of([&] { session->call({params}); }), "");
  EXPECT_TRUE(kept());
  session->close();
  EXPECT_NE(error_of([&] { session->call({params, grad}); }), "") << "the session has refused it";
  EXPECT_TRUE(kept());
  EXPECT_EQ(values(step()->call({params, grad})[0]), std::vector<float>(kN, 2.5f));
}

TEST_F(DonationTest, WhatCannotBeDonatedIsRefusedAndStays) {
  const auto session = step();
  const Tensor grad = row_of(1);
  std::vector<float> theirs(kN, 1);
  const Tensor whole = vec(std::vector<float>(2 * kN, 1));
  const Tensor lent = row_of(1), holder = Value(static_cast<EagerImpl*>(lent.impl())->lend());
  struct Case {
    Tensor params;
    std::string why;
  };
  const std::vector<Case> cases = {
      {vec(std::vector<float>(kN, 1), true), "it requires grad"},
      {Tensor::borrow(TensorSpec::contiguous(row), theirs.data(), nullptr), "its memory is borrowed"},
      {lent, "its memory is shared with NumPy"},
      {Tensor(ops::slice_axis(whole, 0, 0, kN)), "it is a view"},
      {grad, "2 arguments have its memory"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(error_of([&] {
                  session->call({c.params, grad});
                }),
                HasSubstr("graph 'update': argument 'params' cannot be donated: " + c.why));
    EXPECT_EQ(values(c.params), std::vector<float>(kN, 1));
  }
  EXPECT_EQ(session->session().stats().submitted, 0u);
}

TEST_F(DonationTest, GraphsThatWouldCopyAreRefused) {
  TraceScope trace(eager, "empty");
  const Tensor x = trace.add_input("x", {DType::kFloat32, {0}});
  GraphSessionOptions options;
  options.compile.donated = {"x"};
  options.compile.name = "empty";
  const Value y = ops::neg(x);
  CapturedGraph captured = trace.finish({{"y", y}});
  EXPECT_THAT(error_of([&] { GraphSession(eager, std::move(captured), options); }),
              HasSubstr("graph 'empty': argument 'x' cannot be donated: its slots are larger than it"));
}

TEST_F(DonationTest, OfThreadsThatDonateOneTensorOneHasIt) {
  const auto session = step();
  const Tensor grad = row_of(1);
  for (int round = 0; round < 50; ++round) {
    const Tensor params = row_of(1);
    std::atomic<int> got{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        const ExecutorScope here(eager);
        try {
          got += values(session->call({params, grad})[0])[0] == 0.5f;
        } catch (const Error&) {
          ++refused;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(got, 1);
    ASSERT_EQ(refused, 2);
  }
}

TEST_F(DonationTest, ABundleOfItWorksInPlaceInAService) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("sluice_donation_" + std::to_string(getpid()));
  step()->save(dir.string());
  api::Engine engine;
  for (const bool anew : {false, true}) {
    if (anew) {
      api::CompileOptions options;
      options.donated = {"params"};
      api::replan(engine, dir.string(), dir.string(), options);
    }
    api::Session session = api::Session::load(engine, dir.string(), {.zero_copy = true});
    EXPECT_EQ(session.inputs()[0].copied, "");
    EXPECT_EQ(session.outputs()[0].copied, "");
    api::Tensor params = api::Tensor::from<float>(std::vector<float>(kN, 8), {kN});
    const api::Tensor grad = api::Tensor::from<float>(std::vector<float>(kN, 1), {kN});
    const float* memory = nullptr;
    for (int i = 0; i < 10; ++i) {
      // The first is a copy, since memory of a Tensor::from is anywhere.
      params = session.hand_over({std::move(params), grad}).get()[0];
      if (i == 0) memory = params.data<float>();
      EXPECT_EQ(params.data<float>(), memory);
    }
    EXPECT_EQ(params.data<float>()[kN - 1], 3.0f);
    session.wait_all();
    EXPECT_EQ(session.counters().output_copies, 0u);
    // A session that copies runs it as well.
    api::Session copying = api::Session::load(engine, dir.string());
    EXPECT_EQ(copying.run({grad, grad})[0].data<float>()[0], 0.5f);
    EXPECT_EQ(grad.data<float>()[0], 1.0f);
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sluice::test
