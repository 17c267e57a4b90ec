// Tests what sessions are to the process: their threads, files and memory. And the order in which their streams run
// actors.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "runtime/fixture.h"
#include "support/threads.h"

namespace sluice::test {
namespace {

using Names = std::multiset<std::string>;

Names thread_names() {
  Names names;
  for (const ThreadInfo& thread : live_threads()) names.insert(thread.name);
  return names;
}

Names without(Names names, const Names& others) {
  for (const std::string& other : others) {
    if (const auto it = names.find(other); it != names.end()) names.erase(it);
  }
  return names;
}

// Threads as they are now; what a tool adds at the first thread is there.
Names settled_thread_names() {
  std::thread([] {}).join();
  return thread_names();
}

// The threads that came since, once each has given itself its name.
Names threads_since(const Names& before) {
  std::string own;
  std::getline(std::ifstream("/proc/self/comm"), own);
  Names added;
  EXPECT_TRUE(eventually([&] {
    added = without(thread_names(), before);
    return added.count(own) == 0;
  }));
  return added;
}

size_t count_entries(const char* directory) {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++n;
  return n;
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Process, HasAThreadPerStreamHoweverManyActorsAndSessions) {
  const Names before = settled_thread_names();
  Engine engine({.cores = 1});  // so that the sessions' streams could not compute at the same time
  Session small = load_counted(engine, pipeline({"add_one"}, 2, 3), {}, {.functions = functions()});
  EXPECT_EQ(result(submit(small, filled(1))), filled(2));
  const Names one = threads_since(before);
  for (const char* stream : {"cpu:0/host0", "cpu:0/host1", "cpu:0/host2"}) EXPECT_EQ(one.count(stream), 1u) << stream;
  // All others are CAF's fixed few for control messages, which never fire an actor.
  size_t control = 0;
  for (const std::string& name : one) control += name.starts_with("caf.");
  EXPECT_EQ(control + 3, one.size()) << ::testing::PrintToString(one);
  EXPECT_LE(control, 4u) << ::testing::PrintToString(one);

  Session large = load_counted(engine, pipeline(std::vector<std::string>(200, "copy"), 2, 3), {},
                               {.functions = functions(), .trace = true});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(result(submit(large, filled(3))), filled(3));
  EXPECT_EQ(threads_since(before), one);

  // Firings happen on the plan's streams and nowhere else.
  large.wait_all();
  const Plan& plan = large.plan();
  std::set<int> lanes;
  for (const TraceEvent& event : large.take_trace().events) {
    lanes.insert(event.stream);
    if (event.actor < 0) continue;
    EXPECT_EQ(event.stream, plan.actors[event.actor].stream) << plan.actors[event.actor].name;
  }
  EXPECT_EQ(lanes, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(large.trace_names().streams.size(), 3u);
}

TEST(Process, ASimulatedDeviceAddsItsWorkersOnly) {
  const Names before = settled_thread_names();
  Engine engine({.cores = 2});
  Plans b("device");
  const int host = b.stream("cpu:0", StreamKind::kHost), compute = b.stream("sim:0", StreamKind::kCompute);
  const int feed = b.feed("feed", host), net = b.actor("net", compute), sink = b.sink("sink", host);
  b.reg("go", feed, {net}, {.quota = 2});
  b.reg("done", net, {sink}, {.quota = 2});
  Session session = load_counted(engine, b.build());
  session.submit({}).outputs();
  Names added = threads_since(before);
  for (const char* stream : {"cpu:0/host0", "sim:0/compute0"}) EXPECT_EQ(added.count(stream), 1u) << stream;
  std::erase_if(added, [](const std::string& name) { return name.starts_with("caf."); });
  EXPECT_EQ(added.count("sim worker"), 1u);
  EXPECT_EQ(added.size(), 3u) << ::testing::PrintToString(added);
}

TEST(Process, LoadAndUnloadLeaveNothingBehind) {
  Engine engine({.cores = 2});
  const auto cycle = [&](int i) {
    Session session = load_counted(engine, pipeline({"add_one"}, 2, 3), {}, {.functions = functions()});
    EXPECT_EQ(result(submit(session, filled(1))), filled(2));
    if (i % 2 == 0) submit(session, filled(1));
  };
  const uint64_t bytes = engine.allocator_stats({}).current_bytes;
  for (int i = 0; i < 50; ++i) cycle(i);  // memory pools fill
  const size_t threads = threads_now(), files = count_entries("/proc/self/fd");
  [[maybe_unused]] const int64_t resident = resident_bytes();
  for (int i = 0; i < 100; ++i) cycle(i);
  EXPECT_EQ(threads_now(), threads);
  EXPECT_EQ(count_entries("/proc/self/fd"), files);
  EXPECT_EQ(engine.allocator_stats({}).current_bytes, bytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes() - resident, 100 * 2048) << "of resident memory";
#endif
}

// Three actors of one stream that reuse each other's bytes in its arena, in the order c, a, b, whatever the order in
// which their inputs come: control registers say so, and verify() refuses the plan without them.
Plan ordered() {
  Plans b("ordered");
  b.stream("cpu:0", StreamKind::kHost);
  b.stream("cpu:0", StreamKind::kCompute);
  const int feed = b.feed("feed", 0), a = b.actor("a", 1), bb = b.actor("b", 1), c = b.actor("c", 1);
  const int sink = b.sink("sink", 0);
  b.plan.arenas.push_back({"cpu:0/compute0", 0, 1, 64, 64});
  const int arena = static_cast<int>(b.plan.arenas.size()) - 1;
  for (const int actor : {a, bb, c}) {
    const std::string name = b.plan.actors[actor].name;
    const int x = b.reg("x_" + name, feed, {actor}, {.quota = 4, .bytes = 16});
    const int y = b.reg("y_" + name, actor, {sink}, {.quota = 4, .bytes = 16});
    b.plan.buffers.push_back({"scratch_" + name, arena, 0, 64});
    const View scratch = b.of_buffer(static_cast<int>(b.plan.buffers.size()) - 1, {kN});
    b.call(actor, "add_one", {b.r(x)}, {scratch});
    b.call(actor, "twice", {scratch}, {b.r(y)});
    b.input("x_" + name, x, b.f32({kN}));
    b.output("y_" + name, b.r(y));
  }
  b.reg("c_then_a", c, {a}, {.quota = 2});
  b.reg("a_then_b", a, {bb}, {.quota = 2});
  b.reg("b_then_c", bb, {c}, {.quota = 2, .initial_tokens = 1});
  return b.build();
}

TEST(Process, AStreamFiresItsActorsInThePlansOrder) {
  Engine engine({.cores = 2});
  Session session = load_counted(engine, ordered(), {}, {.functions = functions(), .trace = true});
  const Floats x = filled(1), y = filled(2), z = filled(3);
  const TensorSpec spec = PlanBuilder::f32({kN});
  const InputTensor inputs[] = {{x.data(), spec}, {y.data(), spec}, {z.data(), spec}};
  std::vector<StepHandle> steps;
  for (int i = 0; i < 50; ++i) steps.push_back(session.submit(inputs));
  for (StepHandle& step : steps) {
    EXPECT_EQ(values(step.outputs()[0]), filled(4));
    EXPECT_EQ(values(step.outputs()[2]), filled(8));
  }
  session.wait_all();
  const Plan& plan = session.plan();
  std::vector<int> period;  // of the stream, as the plan's certificate says
  for (const int actor : plan.certificate) {
    if (plan.actors[actor].stream == 1) period.push_back(actor);
  }
  std::string names;
  for (const int actor : period) names += plan.actors[actor].name;
  EXPECT_EQ(names, "cab");
  size_t fired = 0;
  for (const TraceEvent& event : session.take_trace().events) {
    if (event.stream != 1 || event.wait || event.kernel >= 0) continue;
    EXPECT_EQ(event.actor, period[fired % period.size()]) << "firing " << fired;
    EXPECT_EQ(event.step, fired / period.size());
    ++fired;
  }
  EXPECT_EQ(fired, 150u);
}

}  // namespace
}  // namespace sluice::test
