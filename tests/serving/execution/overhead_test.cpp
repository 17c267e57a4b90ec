// Prints what an executor adds to a step: serving_execution_tests --gtest_also_run_disabled_tests
// --gtest_filter='*Overhead*'. Not a test, since a busy machine has other figures.
#include <algorithm>
#include <thread>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

using OverheadTest = ExecutionTest;

template <class F>
double median_us(F&& f) {
  std::vector<double> us;
  for (int i = 0; i < 5000; ++i) {
    const auto begin = Clock::now();
    f();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(us.begin(), us.begin() + 2500, us.end());
  return us[2500];
}

TEST_F(OverheadTest, DISABLED_OfASmallRequest) {
  const std::string path = bundle("b", doubling(2));
  const auto plain = make(path, R"(
    input { name: "x" data_type: TYPE_FP32 dims: [2, 3] }
    output { name: "y" data_type: TYPE_FP32 dims: [2, 3] })");
  const auto batching = make(family("d", doubling, {1, 2, 4}, 3), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] }
    dynamic_batching { })");
  api::Session session = api::Session::load(engine_, path, {.zero_copy = true});
  const Floats x(6, 1);
  for (int round = 0; round < 3; ++round) {
    std::printf("session %.1f us, executor %.1f us, with batching %.1f us\n", median_us([&] {
                  session.hand_over({api::Tensor(api::DType::kFloat32, {2, 3}, memory_of(x.data(), 24))}).get();
                }),
                median_us([&] {
                  Call(*plain, request(floats("x", {2, 3}, x))).get();
                }),
                median_us([&] {
                  Call(*batching, request(floats("x", {2, 3}, x))).get();
                }));
  }
}

// Requests a second of one instance on one core, and of two on two.
TEST_F(OverheadTest, DISABLED_OfSeveralInstances) {
  const std::string type = "float32(256, 256)";
  std::string graph = "graph \"work\" {\n  %0 = input \"x\" : " + type + "\n";
  for (int i = 1; i <= 6; ++i)
    graph += "  %" + std::to_string(i) + " = matmul(%" + std::to_string(i - 1) + ", %0) : " + type + "\n";
  graph += "  output \"y\" = %6\n}\n";
  const auto rate = [&](int cores) {
    const api::Engine engine({.cores = cores});
    api::Engine& mine = const_cast<api::Engine&>(engine);
    const std::string path = dir_ / ("work" + std::to_string(cores));
    if (!fs::exists(path)) api::compile(mine, graph, {}, path);
    ExecutorSpec spec;
    spec.config = config(
        "input { name: 'x' data_type: TYPE_FP32 dims: [256, 256] } output { name: 'y' data_type: TYPE_FP32 dims: [256, "
        "256] }"
        "instance_group { count: " +
        std::to_string(cores) + " }");
    spec.bundle = path;
    const auto executor = make_executor({mine, actors_, options_}, spec);
    const Floats x(256 * 256, 1e-3f);
    std::vector<std::thread> clients;
    const auto begin = Clock::now();
    std::atomic<int> done{0};
    for (int c = 0; c < 4; ++c)
      clients.emplace_back([&] {
        while (Clock::now() - begin < std::chrono::seconds(2)) {
          Call(*executor, request(floats("x", {256, 256}, x))).get();
          ++done;
        }
      });
    for (std::thread& client : clients) client.join();
    return done / std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (int round = 0; round < 4; ++round) {
    const double one = rate(1), two = rate(2);
    std::printf("one instance on one core %.0f/s, two on two %.0f/s: %.2f\n", one, two, two / one);
  }
}

}  // namespace
}  // namespace sluice::serving::test
