// Memory is what the ledger says, from the first step to the last: long runs allocate nothing and do not grow, and a
// process that may have the ledger's bytes and a constant runs the plan.
#include <sys/mman.h>
#include <sys/resource.h>

#include <array>
#include <fstream>

#include "aborts/child.h"
#include "plan/pack/ledger.h"
#include "support/alloc_counter.h"

namespace sluice::test {
namespace {

#ifdef SLUICE_TEST_SANITIZED
constexpr bool kSanitized = true;  // their shadow grows, their allocator keeps what is freed
#else
constexpr bool kSanitized = false;
#endif
constexpr int64_t kMayGrow = 256 << 10;

// Bytes of a line like "Rss:  1716 kB". Exact, where the counters of /proc/self/statm lag behind.
int64_t bytes_of(const char* file, const std::string& field) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  ADD_FAILURE() << file << " has no " << field;
  return 0;
}

// A session in steady state, with as many steps in flight as it takes.
class Steps {
 public:
  using Value = std::function<float(uint64_t step)>;

  // Each step's input is all ones, and each value of its output `expected`.
  Steps(const Plan& plan, HostFunctions functions, Value expected)
      : spaces_(engine_, plan.spaces), expected_(std::move(expected)) {
    VariableBindings variables;
    for (const Variable& v : plan.variables) variables[v.name] = variable(engine_, 0);
    session_ = Session::load(engine_, plan, variables, {.functions = std::move(functions)});
    in_flight_.resize(static_cast<size_t>(session_.stats().max_in_flight));
    added_.reserve(in_flight_.size() + 1);
    // More handles at once than ever later: the session keeps their memory for reuse.
    std::vector<StepHandle> many;
    for (size_t i = 0; i < 2 * in_flight_.size() + 4; ++i) {
      many.push_back(submit());
      check(many.back());
    }
  }

  void step() {
    StepHandle& oldest = in_flight_[submitted_ % in_flight_.size()];
    if (oldest.valid()) check(oldest);
    oldest = submit();
  }
  void finish() {
    for (StepHandle& handle : in_flight_) {
      if (handle.valid()) check(handle);
      handle = {};
    }
    for (StepHandle& handle : added_) check(handle);
    session_.wait_all();
  }
  // Another step, whatever has become of the others.
  void add() { added_.push_back(submit()); }
  size_t in_flight() const { return in_flight_.size(); }
  uint64_t wrong() const { return wrong_; }
  // Names where the allocators hold, or have ever held, anything but the ledger.
  std::string beyond_ledger() const {
    const SpaceBytes ledger = ledger_bytes(session_.plan(), true, true);
    return spaces_.held_but_for(ledger) + spaces_.peak_but_for(ledger);
  }

 private:
  StepHandle submit() {
    ++submitted_;
    return session_.submit({&input_, 1});
  }
  void check(StepHandle& handle) {
    const auto* data = static_cast<const float*>(handle.outputs()[0].storage->data());
    for (int64_t i = 0; i < kN; ++i) wrong_ += data[i] != expected_(handle.step());
  }

  // Without the watchdog, whose timer allocates a message every few seconds, however many steps those have.
  Engine engine_{EngineOptions{.cores = 2, .watchdog = std::chrono::milliseconds(0)}};
  MemoryWatch spaces_;
  Value expected_;
  Session session_;
  const Floats x_ = filled(1);
  const InputTensor input_{x_.data(), PlanBuilder::f32({kN})};
  std::vector<StepHandle> in_flight_, added_;
  uint64_t submitted_ = 0, wrong_ = 0;
};

// The memory that `steps` more steps took for good, after a warm-up.
struct Growth {
  int64_t steps = 0;
  uint64_t allocations = 0;
  int64_t resident = 0;
  // "" when it is nothing.
  std::string found() const {
    std::string text;
    if (allocations > 0) text += fmt::format("{} allocations in {} steps. ", allocations, steps);
    if (!kSanitized && resident >= kMayGrow) text += fmt::format("grew by {} bytes in {} steps.", resident, steps);
    return text;
  }
};

Growth growth_of(Steps& steps, int64_t n) {
  for (int i = 0; i < 1000; ++i) steps.step();
  const int64_t resident = bytes_of("/proc/self/smaps_rollup", "Rss");
  const uint64_t before = allocations();
  for (int64_t i = 0; i < n; ++i) steps.step();
  const uint64_t made = allocations() - before;
  return {n, made, bytes_of("/proc/self/smaps_rollup", "Rss") - resident};
}

// y(t) = x(t) + y(t - 1), which the actor hands to itself.
Plan feedback_plan() {
  Plans b("feedback");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), add = b.actor("add", 1), sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {add}, {.quota = 2, .bytes = 16});
  const int state = b.reg("state", add, {add}, {.quota = 2, .bytes = 16, .initial_tokens = 1});
  const int y = b.reg("y", add, {sink}, {.quota = 2, .bytes = 16});
  b.call(add, "copy", {b.r(x), b.r(state)}, {b.r(y), b.r(state)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

void expect_flat(const std::string& what, const Plan& plan, const Steps::Value& value) {
  Steps steps(plan, functions(), value);
  const int64_t n = repetitions(5000, 100000);
  const Growth growth = growth_of(steps, n);
  EXPECT_EQ(growth.found(), "");
  steps.finish();
  EXPECT_EQ(steps.wrong(), 0u);
  EXPECT_EQ(steps.beyond_ledger(), "");
  report_count("memory of long runs, " + what, n, "steps");
  report_count("memory of long runs, " + what, static_cast<int64_t>(growth.allocations), "allocations");
  report_count("memory of long runs, " + what, growth.resident >> 10, "KiB grown");
}

float one(uint64_t) { return 1; }
float two(uint64_t) { return 2; }
float step_plus_one(uint64_t step) { return static_cast<float>(step) + 1; }

TEST(SoakMemory, AHostChainIsFlat) { expect_flat("host chain", pipeline({"copy", "add_one", "copy"}, 2, 1), two); }
TEST(SoakMemory, CrossingStreamsIsFlat) {
  expect_flat("cross-stream", pipeline({"copy", "add_one", "copy"}, 3, 3), two);
}
TEST(SoakMemory, ADeviceWithCopiesIsFlat) { expect_flat("device with copies", device_plan("copy"), one); }
TEST(SoakMemory, FeedbackIsFlat) { expect_flat("feedback", feedback_plan(), step_plus_one); }
TEST(SoakMemory, UpdatedVariablesAreFlat) { expect_flat("updated variables", updating_plan("copy"), one); }

// Steps enough for 64 bytes of each to be more than a run may grow by.
constexpr int64_t kLeakySteps = 8192;

TEST(SoakMemory, FindsAKernelThatKeeps64BytesOfEachStep) {
  std::vector<std::unique_ptr<std::array<char, 64>>> kept;
  HostFunctions f = functions();
  f["copy"] = [&, copy = f["copy"]](const KernelArgs& a, const std::vector<TensorSpec>& i,
                                    const std::vector<TensorSpec>& o) {
    kept.push_back(std::make_unique<std::array<char, 64>>());
    copy(a, i, o);
  };
  Steps steps(pipeline({"copy"}, 2, 2), f, one);
  const std::string found = growth_of(steps, kLeakySteps).found();
  steps.finish();
  EXPECT_THAT(found, HasSubstr(" allocations in 8192 steps"));
  if (!kSanitized) {
    EXPECT_THAT(found, HasSubstr("grew by "));
  }
}

TEST(SoakMemory, FindsALeakThatIsNoAllocation) {
  if (kSanitized) GTEST_SKIP() << "what a process holds is the sanitizer's as well";
  constexpr size_t kRegion = 16 << 20;
  void* const region = mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(region, MAP_FAILED);
  auto* next = static_cast<char*>(region);
  HostFunctions f = functions();
  f["copy"] = [&, copy = f["copy"]](const KernelArgs& a, const std::vector<TensorSpec>& i,
                                    const std::vector<TensorSpec>& o) {
    std::fill_n(next, 64, 'x');
    next += 64;
    copy(a, i, o);
  };
  {
    Steps steps(pipeline({"copy"}, 2, 2), f, one);
    const std::string found = growth_of(steps, kLeakySteps).found();
    steps.finish();
    EXPECT_THAT(found, ::testing::StartsWith("grew by "));
  }
  munmap(region, kRegion);
}

// The first time too: how many threads will wait at once, nobody knows.
TEST(SoakMemory, WaitingForRoomAllocatesNothing) {
  std::atomic<bool> open{true}, waits{false};
  HostFunctions f = functions();
  f["copy"] = [&, copy = f["copy"]](const KernelArgs& a, const std::vector<TensorSpec>& i,
                                    const std::vector<TensorSpec>& o) {
    open.wait(false);
    copy(a, i, o);
  };
  Steps steps(pipeline({"copy"}, 2, 2), f, one);
  for (int i = 0; i < 1000; ++i) steps.step();
  steps.finish();
  open = false;
  for (size_t i = 0; i < steps.in_flight(); ++i) steps.add();
  std::jthread opener([&, waiting = gettid()] {
    waits.wait(false);
    EXPECT_TRUE(falls_asleep(waiting));
    open = true;
    open.notify_all();
  });
  const uint64_t before = thread_allocations();
  waits = true;
  waits.notify_all();
  steps.add();
  EXPECT_EQ(thread_allocations() - before, 0u);
  steps.finish();
  EXPECT_EQ(steps.wrong(), 0u);
}

// A process that may have as much memory as the ledger says and kConstant more. Limits are on private memory that can
// be written (RLIMIT_DATA), counted in pages from what the engine and its threads have before the plan is loaded.
constexpr uint64_t kConstant = 256 << 10;
constexpr uint64_t kSlot = 8 << 20;
constexpr const char* kChild = "SLUICE_TEST_RUN_WITHIN";  // bytes, for the process that is to run in them

Plan large_plan() {
  Plans b("large");
  b.stream("cpu:0", StreamKind::kHost, 0);
  b.stream("cpu:0", StreamKind::kHost, 1);
  const int feed = b.feed("feed", 0), net = b.actor("net", 1), sink = b.sink("sink", 0);
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int wide = b.reg("wide", net, {net}, {.quota = 3, .bytes = kSlot, .initial_tokens = 1});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.call(net, "add_one", {b.r(x)}, {b.r(y), b.r(wide)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

// Threads that end give back their stacks.
int64_t settled_data_bytes() {
  if (!others_fall_asleep()) std::_Exit(9);
  return bytes_of("/proc/self/status", "VmData");
}

// Ends the process with 0 when it runs 100 steps of large_plan() in `bytes`, and with 3 when loading is refused, by an
// error that names who needs the memory, and nothing has run.
[[noreturn]] void run_within(uint64_t bytes) {
  const Plan plan = large_plan();
  Engine engine({.cores = 2});
  std::atomic<int> firings{0};
  HostFunctions f = functions();
  f["add_one"] = [&, add_one = f["add_one"]](const KernelArgs& a, const std::vector<TensorSpec>& i,
                                             const std::vector<TensorSpec>& o) {
    ++firings;
    add_one(a, i, o);
  };
  {  // makes the streams, which the engine keeps
    Session first = Session::load(engine, pipeline({"copy"}, 2, 2), {}, {.functions = functions()});
    result(submit(first, filled(1)));
  }
  const rlim_t limit = static_cast<rlim_t>(settled_data_bytes()) + bytes;
  const rlimit limits{limit, limit};
  if (setrlimit(RLIMIT_DATA, &limits) != 0) std::_Exit(5);
  Session session;
  try {
    session = Session::load(engine, plan, {}, {.functions = f});
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string wide = fmt::format("largest registers: 'wide' (3 slots of {})", bytes_str(kSlot));
    const bool named = error.kind() == ErrorKind::kMemory && text.starts_with("plan 'large': memory: out of memory") &&
                       text.find(bytes_str(ledger(plan).total) + " in all: arenas ") != std::string::npos &&
                       text.find(wide) != std::string::npos;
    if (!named) std::fprintf(stderr, "%s\n", text.c_str());
    std::_Exit(named && firings == 0 ? 3 : 4);
  }
  for (int i = 0; i < 100; ++i) {
    if (result(submit(session, filled(1))) != filled(2)) std::_Exit(6);
  }
  std::_Exit(0);
}

TEST(HardLimit, TheLedgerAndAConstantAreEnoughAndASlotLessIsRefused) {
  if (kSanitized) GTEST_SKIP() << "sanitizers map more memory than any limit";
  if (const char* bytes = std::getenv(kChild)) run_within(std::stoull(bytes));
  const uint64_t total = ledger(large_plan()).total;
  // A new program: what this process has freed, a fork of it could use again.
  const auto within = [](uint64_t bytes) {
    return outcome_of([bytes] {
      setenv(kChild, std::to_string(bytes).c_str(), 1);
      execl("/proc/self/exe", "aborts_tests", "--gtest_brief=1", "--gtest_filter=HardLimit.*", nullptr);
      std::_Exit(8);
    });
  };
  EXPECT_EQ(within(total + kConstant), "exit code 0");
  EXPECT_EQ(within(total + kConstant - kSlot), "exit code 3");
  // The limit is real: what the heap had left over does not make up for as much as the constant.
  EXPECT_EQ(within(total - kConstant), "exit code 3");
  report_count("hard limit: beyond the ledger a run may need", kConstant >> 10, "KiB");
  // And by the budget, before anything is allocated.
  EXPECT_NO_THROW(check_budget(large_plan(), total));
  EXPECT_EQ(error_of([&] { check_budget(large_plan(), total - kSlot); }),
            fmt::format("memory: plan 'large': over its memory budget: needs {}, budget {}; the smallest budget that "
                        "works is {} bytes; largest registers: 'wide' (3 slots of {}), 'x' (2 slots of 16 bytes), 'y' "
                        "(2 slots of 16 bytes)",
                        bytes_str(total), bytes_str(total - kSlot), total, bytes_str(kSlot)));
}

}  // namespace
}  // namespace sluice::test
