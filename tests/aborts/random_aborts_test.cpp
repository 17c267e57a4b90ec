// Plans in flight, ended at a random moment in a random way: always soon, with every slot, byte and thread back, and
// with an engine that works on.
#include "aborts/support.h"

namespace sluice::test {
namespace {

enum class Abort { kStop, kDestroySession, kDestroyEngine, kFailing, kForeignException, kDropHandles, kStopFromOutput };
constexpr int kAborts = 7;

struct Case {
  uint64_t seed = 0;
  Abort abort = Abort::kStop;
  Abort second = Abort::kStop;  // by another thread at the same moment
  bool two = false;
  int kind = 0;  // of plan
  std::string str() const {
    return fmt::format("seed {}: abort {}{}, plan {}", seed, static_cast<int>(abort),
                       two ? fmt::format(" and {}", static_cast<int>(second)) : std::string(), kind);
  }
};

Case case_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  Case c;
  c.seed = seed;
  c.abort = static_cast<Abort>(random() % kAborts);
  c.two = random() % 3 == 0;
  c.second = random() % 2 == 0 ? Abort::kStop : Abort::kDestroyEngine;
  c.kind = static_cast<int>(random() % 5);
  return c;
}

Plan plan_of(int kind, std::mt19937_64& random) {
  const int quota = 1 + static_cast<int>(random() % 4);
  switch (kind) {
    case 0: return pipeline({"stage"}, quota, 1);
    case 1: return pipeline({"copy", "stage", "add_one"}, quota, 3);
    case 2: return pipeline({"stage", "copy", "stage", "twice", "copy"}, quota, 2);
    case 3: return device_plan("stage");
    default: return updating_plan("stage");
  }
}

// The result of "stage" for `x`, and of the rest of the plan for that.
float expected(int kind, float x) {
  switch (kind) {
    case 1: return x + 1;
    case 2: return 2 * x;
    default: return x;
  }
}

struct InFlight {
  std::vector<StepHandle> steps;
  std::vector<float> inputs;
};

// The firing of "stage" at which a plan is ended, or the end of one that submits, where that is earlier.
class Moment {
 public:
  explicit Moment(int firing) : left_(firing) {}
  void fired() {
    if (left_.fetch_sub(1) == 1) left_.notify_all();
  }
  void come() {
    left_ = 0;
    left_.notify_all();
  }
  void wait() const {
    for (int left = left_; left > 0; left = left_) left_.wait(left);
  }

 private:
  std::atomic<int> left_;
};

// No machine is so busy that what ends by itself takes so long.
constexpr std::chrono::seconds kStopTimeout(60);
constexpr double kSoon = 30;

// Submits until it is refused. Errors are those that an ended session may give.
void submit_all(Session& session, int n, bool wait_some, InFlight& out) {
  for (int i = 0; i < n; ++i) {
    try {
      const Floats x = filled(static_cast<float>(i));
      const InputTensor input{x.data(), PlanBuilder::f32({kN})};
      out.steps.push_back(session.submit({&input, 1}, std::chrono::seconds(20)));
      out.inputs.push_back(static_cast<float>(i));
      if (wait_some && i % 3 == 2) static_cast<void>(out.steps.back().wait());
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.find("was stopped") != std::string::npos || text.find("ended") != std::string::npos) << text;
      return;
    }
  }
}

void run_case(const Case& c, std::unique_ptr<Engine>& engine, size_t idle_threads) {
  SCOPED_TRACE(c.str());
  std::mt19937_64 random(c.seed * 7919 + 1);
  if (engine == nullptr) engine = std::make_unique<Engine>(EngineOptions{.cores = 2, .stop_timeout = kStopTimeout});
  const Space host{}, sim{SpaceKind::kDevice, parse_device("sim:0")};
  const auto allocator = engine->allocator(host), device = engine->allocator(sim);
  const uint64_t before = allocator->stats().current_bytes, device_before = device->stats().current_bytes;

  const int turns = static_cast<int>(random() % 3) * 100;
  const float bad =
      c.abort == Abort::kFailing || c.abort == Abort::kForeignException ? static_cast<float>(random() % 12) : -1.0F;
  const bool foreign = c.abort == Abort::kForeignException;
  HostFunctions f = functions();
  f["stage"] = elementwise([bad, foreign](float x) {
    if (x == bad && foreign) throw 7;  // NOLINT: not an exception class, on purpose
    if (x == bad) fail(ErrorKind::kValue, "stage: {} is not accepted; give another", x);
    return x;
  });
  Moment moment(static_cast<int>(random() % 40));
  f["stage"] = [&moment, inner = giving_way(turns, f["stage"])](const KernelArgs& a, const std::vector<TensorSpec>& i,
                                                                const std::vector<TensorSpec>& o) {
    moment.fired();
    inner(a, i, o);
  };
  const bool updating = c.kind == 4;
  VariableBindings variables;
  if (updating) variables = {{"w", variable(*engine, 0)}, {"v", variable(*engine, 0)}};
  Session session;
  SessionOptions options{.functions = f, .stop_timeout = kStopTimeout};
  std::atomic<int> refused{0};
  if (c.abort == Abort::kStopFromOutput) {
    // On a stream's own thread stop() says that it cannot wait there; it cancels all the same.
    options.on_output = [&](uint64_t step, const Status&, const std::vector<OutputTensor>&) {
      if (step != 3) return;
      try {
        session.stop();
      } catch (const Error&) {
        ++refused;
      }
    };
  }
  session = load_counted(*engine, plan_of(c.kind, random), variables, options);

  const int callers = 1 + static_cast<int>(random() % 2);
  std::vector<InFlight> flights(callers);
  std::vector<std::thread> threads;
  for (InFlight& flight : flights) {
    threads.emplace_back([&, n = 4 + static_cast<int>(random() % 30), some = random() % 2 == 0] {
      submit_all(session, n, some, flight);
      moment.come();
    });
  }
  moment.wait();
  for (uint64_t turn = random() % 100; turn > 0; --turn) std::this_thread::yield();  // in the middle of a firing

  // Destroying the session object needs its callers to be through; ending it does not.
  const auto start = Clock::now();
  const auto abort = [&](Abort what) {
    switch (what) {
      case Abort::kStop: session.stop(); break;
      case Abort::kDestroyEngine: engine.reset(); break;
      default: break;
    }
  };
  std::thread other;
  if (c.two && !(c.abort == Abort::kDestroyEngine && c.second == Abort::kDestroyEngine)) {
    other = std::thread([&] { abort(c.second); });
  }
  abort(c.abort);
  for (std::thread& thread : threads) thread.join();
  const bool uncancelled = bad >= 0 && !c.two;
  if (uncancelled) session.wait_all();
  if (other.joinable()) other.join();
  if (c.abort == Abort::kDropHandles) flights.clear();
  uint64_t good = 0, submitted = 0;
  { const Session ended = std::move(session); }  // whatever it is still doing
  EXPECT_LT(seconds_since(start), kSoon) << "it waited for kStopTimeout";

  for (InFlight& flight : flights) {
    submitted += flight.steps.size();
    for (size_t i = 0; i < flight.steps.size(); ++i) {
      ASSERT_TRUE(flight.steps[i].done());
      const Status status = flight.steps[i].wait();
      if (status.ok()) {
        ++good;
        EXPECT_EQ(result(flight.steps[i]), filled(expected(c.kind, flight.inputs[i])));
      } else if (status.kind() != ErrorKind::kCancelled) {
        EXPECT_EQ(flight.inputs[i], bad) << status.message();
        EXPECT_THAT(status.message(), HasSubstr(foreign ? "unknown exception" : "is not accepted"));
        EXPECT_THAT(status.message(), HasSubstr("net.py:"));
        if (updating) {
          EXPECT_THAT(status.message(), HasSubstr("already updated: w"));
        }
      } else {
        EXPECT_FALSE(uncancelled) << "nobody cancelled: " << status.message();
      }
    }
  }
  if (updating) {
    // A step updates all or, when its kernel fails, what comes before; one that was cancelled updates a part at most.
    const auto value = [&](const char* name) { return *static_cast<const float*>(variables[name]->data()); };
    EXPECT_GE(value("w"), value("v"));
    if (c.abort != Abort::kDropHandles) {
      EXPECT_LE(value("w"), static_cast<float>(submitted));
      EXPECT_GE(value("v"), static_cast<float>(good));
    }
  }
  variables.clear();
  flights.clear();
  EXPECT_EQ(allocator->stats().current_bytes, before);
  EXPECT_EQ(device->stats().current_bytes, device_before);
  if (engine == nullptr) {
    EXPECT_LE(threads_settled(idle_threads), idle_threads);
    return;
  }
  EXPECT_EQ(engine->caching_allocator()->stats().current_bytes, 0u);
  // It works on.
  Session next = load_counted(*engine, pipeline({"add_one"}, 2, 3), {}, {.functions = functions()});
  EXPECT_EQ(result(submit(next, filled(1))), filled(2));
}

TEST(SoakAborts, EndSoonReturnEverythingAndLeaveTheEngineUsable) {
  std::thread([] {}).join();
  const size_t idle_threads = threads_at_rest();
  const int64_t n = repetitions(400, 9000);
  Progress progress("aborts", n);
  std::unique_ptr<Engine> engine;
  double longest = 0;
  for (int64_t i = 0; i < n && !HasFailure(); ++i) {
    const auto start = Clock::now();
    run_case(case_of(static_cast<uint64_t>(i)), engine, idle_threads);
    longest = std::max(longest, seconds_since(start));
    progress.step();
  }
  engine.reset();
  EXPECT_LE(threads_settled(idle_threads), idle_threads);
  report_count("random aborts in C++", n, "plans in flight");
  report_count("longest abort, its next session included", static_cast<int64_t>(longest * 1000), "ms");
}

}  // namespace
}  // namespace sluice::test
