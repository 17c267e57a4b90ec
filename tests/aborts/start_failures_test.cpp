// The system starts no more threads: every attempt to start one that is made while an engine is made, a plan is loaded
// and run fails once, and from then on always. Each time who asked is told which thread is missing, nothing is left
// behind, and the next try succeeds. Threads of OpenMP are not ours and end the process: kernels here use one.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <set>

#include "aborts/support.h"

namespace {

std::atomic<int> refused_from{-1}, refused_until{-1}, starts{0};

// Attempts number `from` to `until` - 1 fail, as with a limit of threads.
struct Refusal {
  Refusal(int from, int until) {
    starts = 0;
    refused_until = until;
    refused_from = from;
  }
  ~Refusal() { refused_from = refused_until = -1; }
  static bool met() { return starts > refused_from; }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attr,
                                                                     void* (*run)(void*), void* arg) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (refused_until >= 0) {
    const int start = starts++;
    if (start >= refused_from && start < refused_until) return EAGAIN;
  }
  return create(thread, attr, run, arg);
}

namespace sluice::test {
namespace {

constexpr int kForEver = 1 << 30;

Plan simulated() {
  Plans b("simulated");
  const int host = b.stream("cpu:0", StreamKind::kHost), copy = b.stream("sim:0", StreamKind::kCopyIn);
  const int compute = b.stream("sim:0", StreamKind::kCompute);
  const int device = b.space(SpaceKind::kDevice, "sim:0");
  const int feed = b.feed("feed", host), up = b.actor("up", copy), net = b.actor("net", compute);
  const int sink = b.sink("sink", host);
  const int x = b.reg("x", feed, {up}, {.quota = 2, .bytes = 16});
  const int dx = b.reg("dx", up, {net}, {.quota = 2, .bytes = 16, .space = device});
  b.reg("done", net, {sink}, {.quota = 2});
  b.run(up, "copy", {b.r(x)}, {b.r(dx)});
  b.input("x", x, b.f32({kN}));
  return b.build();
}

// How many starts the whole takes when none is refused, and what it is told when the n-th is.
int refuse_each(const char* what, bool for_ever, size_t threads, const std::function<void(Engine&)>& run) {
  int refused = 0;
  std::set<std::string> told;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(fmt::format("{}: start {} refused", what, n));
    {
      Engine engine({.cores = 1});
      std::string error;
      bool met = false;
      {
        const Refusal refusal(n, for_ever ? kForEver : n + 1);
        error = error_of([&] { run(engine); });
        met = Refusal::met();
      }
      if (!met) {
        EXPECT_EQ(error, "no error");
        break;
      }
      ++refused;
      EXPECT_THAT(error, ::testing::AllOf(::testing::StartsWith("runtime: "),
                                          HasSubstr(": its thread could not be started: "), HasSubstr("; use fewer")));
      told.insert(error.substr(0, error.find(": its")));
      EXPECT_EQ(engine.allocator_stats({}).current_bytes, 0u);
      EXPECT_EQ(engine.allocator_stats({SpaceKind::kDevice, parse_device("sim:0")}).current_bytes, 0u);
      run(engine);
      EXPECT_EQ(engine.allocator_stats({}).current_bytes, 0u);
    }
    EXPECT_EQ(threads_settled(threads), threads);
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GE(told.size(), 4u) << ::testing::PrintToString(told);
  return refused;
}

// While it lasts every start fails; that ends engines, too, which use a thread for it.
TEST(SoakStartFailures, EachIsToldAndLeavesNothing) {
  std::thread([] {}).join();
  const size_t threads = threads_at_rest();
  const int rounds = static_cast<int>(repetitions(3, 60));
  int64_t refused = 0;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    for (const bool for_ever : {false, true}) {
      refused += refuse_each("host", for_ever, threads, [](Engine& engine) {
        Session session = Session::load(engine, pipeline({"add_one", "twice"}, 2, 3), {}, {.functions = functions()});
        EXPECT_EQ(result(submit(session, filled(1))), filled(4));
      });
      refused += refuse_each("simulated", for_ever, threads, [](Engine& engine) {
        Session session = Session::load(engine, simulated());
        const Floats x = filled(1);
        submit(session, x).outputs();
      });
    }
  }
  report_count("thread starts refused", refused, "starts");
}

TEST(StartFailures, AnEngineEndsAlthoughNoThreadCanBeStarted) {
  std::thread([] {}).join();  // a sanitizer makes one of its own beside the first
  const size_t threads = threads_at_rest();
  auto engine = std::make_unique<Engine>(EngineOptions{.cores = 1});
  Session session = Session::load(*engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
  EXPECT_EQ(result(submit(session, filled(1))), filled(2));
  const Refusal refusal(0, kForEver);
  session.stop();
  engine.reset();
  EXPECT_TRUE(Refusal::met());
  EXPECT_EQ(threads_settled(threads), threads);
}

TEST(StartFailures, TheRefusalIsSeenByThreadsOfTheStandardLibrary) {
  const Refusal refusal(1, 2);
  std::thread([] {}).join();
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  std::thread([] {}).join();
}

}  // namespace
}  // namespace sluice::test
