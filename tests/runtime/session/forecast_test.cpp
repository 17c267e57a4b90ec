// Holds what the simulator says of plans of several ranks against processes that run them. Kernels sleep, so that the
// machine's cores do not matter.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "collective/ranks.h"
#include "plan/ranks.h"
#include "plan/time/machine.h"
#include "plan/time/simulator.h"
#include "runtime/fixture.h"
#include "runtime/sleeping.h"
#include "support/forecast_plan.h"
#include "support/processes.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kForecastSteps = 12;

// Memory that processes share.
class Shared {
 public:
  Shared()
      : ns_(static_cast<double*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { munmap(ns_, kBytes); }
  double& operator[](int rank) { return ns_[rank]; }

 private:
  static constexpr size_t kBytes = 4096;
  double* const ns_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Measured {
  double period_ns = 0;  // in the steady state: the median over the later steps, and over the ranks
  double late_ns = 0;    // the mean of the ranks' Lateness
};

Measured measure(const Plan& plan, const ForecastOptions& o) {
  const int n = plan::rank_count(plan), port = free_port();
  Shared shared;
  const auto codes = in_processes(n, [&](int rank) {
    EngineOptions options;
    options.cores = 1;
    options.world = std::make_shared<World>(world_options(rank, n, port));
    Engine engine(options);
    Lateness late, none;
    SessionOptions session_options;
    session_options.max_in_flight = kForecastSteps;
    session_options.functions = {{"forward", sleeping(o.forward_ns, late)},
                                 {"backward", sleeping(o.backward_ns, late)},
                                 {"update", sleeping(o.update_ns, late)},
                                 {"give", sleeping(0, none)}};
    Session session = Session::load(engine, plan, {}, session_options);
    std::vector<StepHandle> steps;
    for (int i = 0; i < kForecastSteps; ++i) steps.push_back(session.submit({}));
    std::vector<double> ns;
    Clock::time_point last;
    for (int i = 0; i < kForecastSteps; ++i) {
      if (const Status status = steps[i].wait(); !status.ok()) {
        std::cerr << "rank " << rank << ": " << status.message() << "\n";
        return 1;
      }
      const Clock::time_point now = Clock::now();
      if (i >= kForecastSteps / 4) ns.push_back(std::chrono::duration<double, std::nano>(now - last).count());
      last = now;
    }
    shared[rank] = median(std::move(ns));
    shared[n + rank] = late.mean_ns();
    engine.options().world->all().barrier();
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(n, 0));
  Measured measured;
  std::vector<double> periods;
  for (int r = 0; r < n; ++r) {
    periods.push_back(shared[r]);
    measured.late_ns += shared[n + r] / n;
  }
  measured.period_ns = median(std::move(periods));
  return measured;
}

double forecast_ns(Plan plan, double late_ns) {
  for (plan::Kernel& k : plan.kernels) k.cost_ns += k.cost_ns > 0 ? late_ns : 0;
  const Machine machine = plan::machine_from_json(
      R"({"links": [{"between": ["*", "*"], "latency_ns": 100000, "bytes_per_s": 1e9}]})", "links.json");
  return plan::simulate(plan::on_machine(plan::side_by_side(plan), machine),
                        {.steps = kForecastSteps, .message_ns = late_ns})
      .period_ns;
}

struct Shape {
  int stages, replicas, micro;
};
class Forecast : public testing::TestWithParam<Shape> {};

TEST_P(Forecast, IsWithin15PercentOfWhatProcessesDo) {  // C-07, STP-03
  const Shape shape = GetParam();
  const ForecastOptions o{.stages = shape.stages,
                          .replicas = shape.replicas,
                          .micro = shape.micro,
                          .forward_ns = 10e6,
                          .backward_ns = 20e6,
                          .update_ns = 10e6};
  const Plan plan = plan::forecast_plan(o);
  // A pipeline is not as fast as its stages: it fills and drains.
  EXPECT_GE(forecast_ns(plan, 0), (shape.micro + shape.stages - 1) * 30e6 + 10e6 - 1);
  Measured measured;
  double forecast = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {  // other work of the machine may disturb one
    measured = measure(plan, o);
    forecast = forecast_ns(plan, measured.late_ns);
    if (HasFailure() || std::abs(measured.period_ns - forecast) < 0.15 * forecast) break;
  }
  RecordProperty("forecast_us", static_cast<int>(forecast / 1e3));
  RecordProperty("measured_us", static_cast<int>(measured.period_ns / 1e3));
  RecordProperty("late_us", static_cast<int>(measured.late_ns / 1e3));
  EXPECT_NEAR(measured.period_ns / forecast, 1, 0.15)
      << "forecast " << forecast / 1e6 << " ms, measured " << measured.period_ns / 1e6 << " ms, threads wake "
      << measured.late_ns / 1e6 << " ms late";
}

INSTANTIATE_TEST_SUITE_P(Ranks, Forecast,
                         testing::Values(Shape{1, 1, 2}, Shape{1, 2, 2}, Shape{2, 1, 4}, Shape{1, 4, 2}, Shape{2, 2, 4},
                                         Shape{4, 1, 4}),
                         [](const auto& info) {
                           return fmt::format("{}Stages{}Replicas", info.param.stages, info.param.replicas);
                         });

}  // namespace
}  // namespace sluice::test
