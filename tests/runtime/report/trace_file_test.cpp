// A trace goes to its file while steps run.
#include "runtime/report/trace_file.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "actors/trace_rings.h"
#include "plan/record/recording.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

std::string path_of(const std::string& name) {
  return (std::filesystem::path(::testing::TempDir()) / (name + std::to_string(getpid()) + ".slt")).string();
}

// Its thread would sleep for an hour, but a ring that is half full wakes it.
TEST(TraceFile, IsWrittenWhenARingIsHalfFull) {
  Engine engine;
  Session session = Session::load(engine, pipeline({"add_one"}), {}, {.functions = functions()});
  const std::string path = path_of("half");
  TraceFile file(session, path, std::chrono::hours(1));
  const auto head = std::filesystem::file_size(path);
  const int steps = static_cast<int>(actors::TraceRing::kEvents) / 2 / 3 + 1;  // three actors fire in each
  for (int i = 0; i < steps; ++i) submit(session, filled(0));
  session.wait_all();
  while (std::filesystem::file_size(path) == head) std::this_thread::yield();
  file.close();
  const plan::Recording recording = plan::load_recording(path);
  std::filesystem::remove(path);
  EXPECT_EQ(recording.trace.lost, 0u);
  const auto firings = std::ranges::count_if(
      recording.trace.events, [](const TraceEvent& e) { return e.actor >= 0 && e.kernel < 0 && !e.wait; });
  EXPECT_EQ(firings, 3 * steps);
}

// The slices of a firing's kernels follow each other within it, whoever of them has read the clock.
TEST(TraceFile, HasKernelsOneAfterTheOther) {
  Engine engine;
  Plans b("line");
  b.stream("cpu:0", StreamKind::kHost);
  const int feed = b.feed("feed"), net = b.actor("net", 0), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = kN * 4});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = kN * 4});
  const int z = b.reg("z", net, {sink}, {.quota = 2, .bytes = kN * 4});
  b.call(net, "add_one", {b.r(x)}, {b.r(y)});
  b.call(net, "twice", {b.r(x)}, {b.r(z)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  b.output("z", b.r(z));
  Session session = Session::load(engine, b.build(), {}, {.functions = functions()});
  const std::string path = path_of("line");
  TraceFile file(session, path);
  for (int i = 0; i < 50; ++i) submit(session, filled(0));
  session.wait_all();
  file.close();
  const plan::Recording recording = plan::load_recording(path);
  std::filesystem::remove(path);
  int kernels = 0;
  int64_t end = 0;
  for (const TraceEvent& e : recording.trace.events) {
    if (e.actor != net || e.wait) continue;
    if (e.kernel >= 0) {
      EXPECT_GE(e.begin_ns, end);
      EXPECT_GE(e.end_ns, e.begin_ns);
      end = e.end_ns;
      ++kernels;
    } else {
      EXPECT_GE(e.end_ns, end);
    }
  }
  EXPECT_GE(kernels, 50);
}

}  // namespace
}  // namespace sluice::test
