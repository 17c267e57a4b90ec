// Recordings come back as they were, and what is no recording is refused with its place.
#include "plan/record/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/json/json.h"
#include "support/error_of.h"
#include "support/simulated_recording.h"
#include "support/timed_plan.h"
#include "support/two_stage_plan.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_equal(const TraceEvent& a, const TraceEvent& b) {
  EXPECT_EQ(a.stream, b.stream);
  EXPECT_EQ(a.actor, b.actor);
  EXPECT_EQ(a.kernel, b.kernel);
  EXPECT_EQ(a.kernels, b.kernels);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.begin_ns, b.begin_ns);
  EXPECT_EQ(a.end_ns, b.end_ns);
  EXPECT_EQ(a.wait, b.wait);
  EXPECT_EQ(a.left_out, b.left_out);
  EXPECT_EQ(a.firing, b.firing);
  EXPECT_EQ(a.cause, b.cause);
}

TEST(Recording, ComesBackAsItWas) {
  size_t events = 0, bytes = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Plan plan = random_timed_plan(seed);
    as_control(plan);
    for (Kernel& kernel : plan.kernels) kernel.cost_ns *= 3217;
    Recording recording = simulated_recording(plan, {.steps = 50});
    recording.trace.begin_unix_ns = 1'700'000'000'000'000'000;
    recording.trace.begin_clock_ns = 12'345'678'901;
    recording.trace.lost = seed;
    recording.rank = static_cast<int>(seed % 3) - 1;
    recording.trace.events.push_back({.stream = static_cast<int>(plan.streams.size()) - 1,
                                      .begin_ns = INT64_MAX / 2,
                                      .end_ns = INT64_MAX / 2 + 5,
                                      .wait = true});
    const std::string text = recording_of(recording);
    const Recording back = read_recording(text, "run.slt");
    EXPECT_EQ(to_json(back.plan), to_json(plan));
    EXPECT_EQ(back.rank, recording.rank);
    EXPECT_EQ(back.trace.lost, recording.trace.lost);
    EXPECT_EQ(back.trace.begin_unix_ns, recording.trace.begin_unix_ns);
    EXPECT_EQ(back.trace.begin_clock_ns, recording.trace.begin_clock_ns);
    ASSERT_EQ(back.trace.events.size(), recording.trace.events.size());
    for (size_t i = 0; i < back.trace.events.size(); ++i) expect_equal(back.trace.events[i], recording.trace.events[i]);
    events += back.trace.events.size();
    bytes += text.size() - recording_head(plan, recording.trace, recording.rank).size();
  }
  EXPECT_LE(bytes, 8 * events) << events << " events";
}

TEST(Recording, KeepsEveryKindOfEvent) {
  const Plan plan = two_stage_plan();
  const int prepare = 1, stream = plan.actors[prepare].stream;
  Recording recording{plan, {}, -1};
  recording.trace.events = {
      {.stream = stream, .begin_ns = 5, .end_ns = 9, .wait = true},
      {.stream = stream,
       .actor = prepare,
       .step = 3,
       .begin_ns = 20,
       .end_ns = 30,
       .wait = true,
       .cause = {TraceCause::Kind::kCores, 0}},
      {.stream = stream,
       .actor = prepare,
       .kernel = 0,
       .kernels = 300,
       .step = (1ull << 40) - 1,
       .begin_ns = 30,
       .end_ns = 40},
      {.stream = stream, .actor = prepare, .kernel = 0, .step = 3, .begin_ns = 40, .end_ns = 40, .left_out = true},
      {.stream = stream,
       .actor = prepare,
       .step = 3,
       .begin_ns = 19,
       .end_ns = 45,
       .firing = 65535,
       .cause = {TraceCause::Kind::kCredit, 1}}};
  const Recording back = read_recording(recording_of(recording), "run.slt");
  ASSERT_EQ(back.trace.events.size(), recording.trace.events.size());
  for (size_t i = 0; i < back.trace.events.size(); ++i) expect_equal(back.trace.events[i], recording.trace.events[i]);
}

TEST(Recording, AFileThatIsCutOrForeignIsRefusedWithItsPlace) {
  const std::string whole = recording_of(simulated_recording(two_stage_plan(), {.steps = 5}));
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string what = test::message_of([&] { read_recording(std::string_view(whole).substr(0, n), "run.slt"); });
    ASSERT_THAT(what, StartsWith("run.slt: byte ")) << n;
  }
  const auto refused = [](const std::string& text) {
    return test::message_of([&] { read_recording(text, "run.slt"); });
  };
  EXPECT_EQ(refused("{}"), "run.slt: byte 0: this is no recording of Sluice; it must begin with SLUICETR");
  EXPECT_EQ(refused("SLUICETR\x02"), "run.slt: byte 9: version 2 of recordings; this build reads 1");
  EXPECT_THAT(refused(whole + "x"), HasSubstr("there is more behind the end; nothing must be there"));
  EXPECT_THAT(refused(std::string("SLUICETR\x01Q\x00", 11)), HasSubstr("section 0x51 is unknown"));
  EXPECT_THAT(refused(std::string("SLUICETR\x01Z\x01\x00", 12)), HasSubstr("there is no plan"));
  EXPECT_THAT(refused("SLUICETR\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), HasSubstr("a number is too large"));
}

}  // namespace
}  // namespace sluice::plan
