// Memory runs out: every allocation that a call makes on the calling thread fails once, and from then on always until
// the call is over. Each time the caller is told kMemory, nothing is left behind, and the next try computes what it
// should. Allocations are those by operator new and those of tensors' memory (aligned_alloc).
//
// Not of these tests, for it ends the process: what oneDNN and OpenMP allocate, and CAF on threads of its own. They do
// not expect it to fail.
#include <gtest/gtest-spi.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "aborts/support.h"
#include "compiler/fake_target.h"
#include "graph/executor.h"
#include "graph/ops/elementwise.h"
#include "include/sluice/sluice.h"
#include "include/sluice/sluice.hpp"
#include "plan/json/json.h"
#include "runtime/bundle/bundle.h"
#include "support/replace_new.h"
#include "tensor/eager.h"
#include "tensor/session/graph_session.h"
#include "tensor/tensor.h"

namespace {

thread_local int64_t until_failure = -1;  // -1: none fails
thread_local bool for_ever = false, failed = false;
std::atomic<int64_t> live{0};  // objects of operator new

bool fails_now() {
  if (until_failure < 0) return false;
  if (until_failure > 0) {
    --until_failure;
    return false;
  }
  failed = true;
  if (!for_ever) until_failure = -1;
  return true;
}

// While it lasts allocations of this thread fail: number `n`, or all from there.
struct Scarcity {
  Scarcity(int64_t n, bool ever) {
    failed = false;
    for_ever = ever;
    until_failure = n;
  }
  ~Scarcity() { until_failure = -1; }
};

void* take_memory(size_t bytes, size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  void* data = nullptr;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
    data = std::malloc(bytes == 0 ? 1 : bytes);
  } else if (posix_memalign(&data, alignment, bytes) != 0) {
    data = nullptr;
  }
  if (data == nullptr) throw std::bad_alloc();
  live.fetch_add(1, std::memory_order_relaxed);
  return data;
}

void give_memory_back(void* data) {
  if (data != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(data);
}

}  // namespace

SLUICE_REPLACE_NEW(take_memory, give_memory_back)

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" SLUICE_NEW void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  void* data = nullptr;
  return fails_now() || posix_memalign(&data, alignment, bytes) != 0 ? nullptr : data;
}
#endif

namespace sluice::test {
namespace {

// The outcome of a call: "" for success, "memory" for the lack of it, else the error.
template <class F>
std::string outcome(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kMemory ? "memory" : error.what();
  } catch (const api::Error& error) {
    return error.kind() == api::ErrorKind::kMemory ? "memory" : error.what();
  } catch (const std::bad_alloc&) {
    return "bad_alloc";
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "";
}

// A call in which memory is scarce. `before` makes what it needs, `after` checks what became of it; both have memory.
struct Call {
  std::function<void()> before = [] {};
  std::function<void()> call;
  std::function<void(bool done)> after = [](bool) {};
  bool border = false;  // of the public API: bad_alloc must not cross it
};

void run(const Call& call) {
  call.before();
  ASSERT_EQ(outcome(call.call), "");
  call.after(true);
}

// Returns how many allocations have failed.
int64_t sweep(const std::string& what, const Call& call, bool ever) {
  int64_t failures = 0;
  const int64_t every = long_run() ? 1 : 3;
  for (int64_t n = 0; !::testing::Test::HasFailure(); n += every) {
    SCOPED_TRACE(fmt::format("{}: allocation {} fails{}", what, n, ever ? ", and all after it" : ""));
    call.before();
    std::string told;
    bool met = false;
    {
      const Scarcity scarcity(n, ever);
      told = outcome(call.call);
      until_failure = -1;
      met = failed;
    }
    call.after(told.empty());
    if (!met) {
      EXPECT_EQ(told, "");
      break;
    }
    ++failures;
    // Work that can do without (a log line, a larger buffer) goes on.
    EXPECT_TRUE(told.empty() || told == "memory" || (!call.border && told == "bad_alloc")) << told;
    if (failures % 8 == 0) run(call);
  }
  run(call);
  return failures;
}

int64_t sweeps(const std::string& what, const Call& call) {
  run(call);
  int64_t failures = sweep(what, call, false) + sweep(what, call, true);
  // Caches have been filled: from here nothing may stay.
  const int64_t before = live;
  const int64_t again = sweep(what, call, false);
  EXPECT_LT(live - before, again / 8 + 16) << what << ": objects are left behind";
  failures += again;
  EXPECT_GT(failures, 0);
  report_count("allocations failed in " + what, failures, "allocations");
  return failures;
}

constexpr const char* kGraph = R"(graph "small" {
  %0 = input "x" : float32(4)
  %1 = variable "w" : float32(4)
  %2 = add(%0, %1) : float32(4)
  %3 = mul(%2, %2) : float32(4)
  output "y" = %3
}
)";

TEST(SoakAllocationFailures, ReadingAndCheckingAPlan) {
  const std::string text = to_json(updating_plan("add_one"));
  sweeps("from_json", {.call = [&] { EXPECT_EQ(from_json(text, "plan.json").actors.size(), 3u); }});
  const Plan plan = updating_plan("add_one");
  sweeps("verify", {.call = [&] { EXPECT_TRUE(verify(plan).ok()); }});
  sweeps("to_json", {.call = [&] { EXPECT_EQ(to_json(plan), text); }});
}

TEST(SoakAllocationFailures, CopyingAttributes) {
  const Attrs attrs = {std::string(100, 'a'), Ints{1, 2, 3}, NoAttr{}, 2.5, std::string(50, 'b')};
  sweeps("copy", {.call = [&] {
           const Attrs copy = attrs;
           EXPECT_EQ(copy, attrs);
         }});
  Attrs target;
  sweeps("assign", {.before =
                        [&] {
                          target = {Ints{4}, std::string(40, 'c')};
                        },
                    .call = [&] { target = attrs; },
                    .after = [&](bool done) { EXPECT_TRUE(!done || target == attrs); }});
}

TEST(SoakAllocationFailures, ParsingAndCompilingAGraph) {
  const OpRegistry& ops = builtin_ops();
  sweeps("graph text", {.call = [&] { EXPECT_EQ(graph::parse(kGraph, "graph", ops).nodes().size(), 2u); }});
  const graph::Graph graph = graph::parse(kGraph, "graph", ops);
  const FakeTarget target;
  sweeps("compile", {.call = [&] { EXPECT_EQ(compile(graph, target, {}).plan.outputs.size(), 1u); }});
}

TEST(SoakAllocationFailures, LoadingAPlan) {
  Engine engine({.cores = 1});
  const auto bytes = [&] { return engine.allocator_stats({}).current_bytes; };
  for (const bool device : {false, true}) {
    const Plan plan = device ? device_plan("add_one") : pipeline({"add_one"}, 2, 2);
    std::optional<Session> session;
    sweeps(device ? "load on a device" : "load",
           {.call = [&] { session.emplace(Session::load(engine, plan, {}, {.functions = functions()})); },
            .after =
                [&](bool done) {
                  if (done) {
                    EXPECT_EQ(result(submit(*session, filled(1))), filled(2));
                  }
                  session.reset();
                  EXPECT_EQ(bytes(), 0u);
                }});
  }
}

TEST(SoakAllocationFailures, MakingAnEngineAndItsFirstLoad) {
  std::thread([] {}).join();
  const size_t threads = threads_at_rest();
  std::unique_ptr<Engine> engine;
  sweeps("first load", {.call =
                            [&] {
                              engine = std::make_unique<Engine>(EngineOptions{.cores = 1});
                              Session::load(*engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
                            },
                        .after =
                            [&](bool) {
                              engine.reset();
                              EXPECT_EQ(threads_settled(threads), threads);
                            }});
}

TEST(SoakAllocationFailures, SubmittingAndWaiting) {
  Engine engine({.cores = 1});
  const auto w = variable(engine, 0), v = variable(engine, 0);
  std::optional<Session> session;
  const auto load = [&] {
    session.emplace(Session::load(engine, updating_plan("add_one"), {{"w", w}, {"v", v}}, {.functions = functions()}));
  };
  const auto check = [&](bool) {
    EXPECT_EQ(result(submit(*session, filled(3))), filled(4));
    session->wait_all();
    session.reset();
  };
  const Floats x = filled(1);
  sweeps("submit",
         {.before = load, .call = [&] { EXPECT_EQ(result(submit(*session, x)), filled(2)); }, .after = check});
  std::optional<StepHandle> step;
  sweeps("wait", {.before =
                      [&] {
                        load();
                        step = submit(*session, x);
                      },
                  .call = [&] { EXPECT_EQ(values(step->outputs()[0]), x.empty() ? x : filled(2)); },
                  .after =
                      [&](bool done) {
                        EXPECT_EQ(result(*step), filled(2));
                        step.reset();
                        check(done);
                      }});
  sweeps("stats", {.before = load, .call = [&] { EXPECT_EQ(session->stats().failed, 0u); }, .after = check});
}

TEST(SoakAllocationFailures, EndingASession) {
  Engine engine({.cores = 1});
  const Floats x = filled(1);
  for (const bool traced : {false, true}) {
    std::optional<Session> session;
    std::optional<StepHandle> step;
    sweeps(traced ? "end of a traced session" : "end of a session",
           {.before =
                [&] {
                  session.emplace(Session::load(engine, pipeline({"add_one"}, 2, 2), {},
                                                {.functions = functions(), .trace = traced}));
                  step = submit(*session, x);
                },
            .call = [&] { session.reset(); },
            .after =
                [&](bool done) {
                  EXPECT_TRUE(done);
                  EXPECT_TRUE(step->done());
                  step.reset();
                  Session next = Session::load(engine, pipeline({"add_one"}, 2, 2), {}, {.functions = functions()});
                  EXPECT_EQ(result(submit(next, x)), filled(2));
                }});
  }
}

TEST(SoakAllocationFailures, EagerOps) {
  Engine engine({.cores = 1});
  EagerExecutor eager(engine);
  const ExecutorScope scope(eager);
  const Floats x = filled(2);
  const auto call = [&] {
    const Tensor a = Tensor::from_host({DType::kFloat32, {kN}}, x.data());
    Floats out(kN);
    Tensor(ops::mul(ops::add(a, a), a)).copy_to_host(out.data());
    EXPECT_EQ(out, filled(8));
  };
  const uint64_t bytes = engine.caching_allocator()->stats().current_bytes;
  sweeps("eager ops",
         {.call = call, .after = [&](bool) { EXPECT_EQ(engine.caching_allocator()->stats().current_bytes, bytes); }});
}

// The bundle of y = x + x.
std::string doubling_bundle() {
  Plans b("doubling");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.run(net, "add", {b.r(x), b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  const std::string dir = ::testing::TempDir() + "sluice_allocation_failures_" + std::to_string(getpid());
  save_bundle(dir, {b.build(), "graph text\n", {}, {}});
  return dir;
}

TEST(SoakAllocationFailures, TheCppApi) {
  const std::string dir = doubling_bundle();
  api::Engine engine({.cores = 1});
  const std::vector<api::Tensor> inputs{api::Tensor::from(filled(2), {kN})};
  sweeps("C++ API", {.call =
                         [&] {
                           const api::Plan plan = api::Plan::load(dir);
                           EXPECT_EQ(plan.verify(), "");
                           api::Session session = api::Session::load(engine, dir);
                           const std::vector<api::Tensor> y = session.run(inputs);
                           EXPECT_EQ(y[0].data<float>()[3], 4);
                           EXPECT_EQ(session.firings().size(), 3u);
                         },
                     .after = [&](bool) { EXPECT_EQ(engine.memory_bytes(), 0u); },
                     .border = true});
  std::filesystem::remove_all(dir);
}

TEST(SoakAllocationFailures, TheCApi) {
  const std::string dir = doubling_bundle();
  sluice_engine* engine = nullptr;
  ASSERT_EQ(sluice_engine_create(nullptr, &engine), nullptr);
  const int64_t shape[] = {kN};
  const Floats values = filled(2);
  const auto check = [](sluice_status* status) {
    const sluice_kind kind = sluice_status_kind(status);
    const bool lost = kind != SLUICE_ERROR_MEMORY;
    const std::string text = lost ? sluice_status_message(status) : "";
    sluice_status_destroy(status);
    if (kind == SLUICE_OK) return;
    if (lost) fail(ErrorKind::kRuntime, "{}", text);
    throw std::bad_alloc();
  };
  sluice_session* session = nullptr;
  sluice_tensor *x = nullptr, *y = nullptr;
  sweeps("C API", {.call =
                       [&] {
                         check(sluice_session_load(engine, dir.c_str(), nullptr, &session));
                         check(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 1, values.data(), 16, &x));
                         check(sluice_session_run(session, &x, 1, &y, 1));
                         EXPECT_EQ(static_cast<const float*>(sluice_tensor_data(y))[0], 4);
                       },
                   .after =
                       [&](bool) {
                         sluice_tensor_destroy(x);
                         sluice_tensor_destroy(y);
                         sluice_session_destroy(session);
                         x = y = nullptr;
                         session = nullptr;
                         EXPECT_EQ(sluice_engine_memory_bytes(engine), 0u);
                       }});
  sluice_engine_destroy(engine);
  std::filesystem::remove_all(dir);
}

// The sweep finds what it is for.
TEST(AllocationFailures, TheSweepFindsPlantedBugs) {
  EXPECT_NONFATAL_FAILURE(sweep("swallowed",
                                {.call =
                                     [] {
                                       try {
                                         EXPECT_EQ(std::vector<int>(100).size(), 100u);
                                       } catch (const std::bad_alloc&) {
                                         throw std::runtime_error("lost");
                                       }
                                     }},
                                false),
                          "another exception: lost");
}

}  // namespace
}  // namespace sluice::test
