#include "plan/record/recording.h"

#include "fuzz_targets/targets.h"
#include "plan/record/blame.h"
#include "plan/record/latency.h"
#include "plan/verify.h"

namespace sluice::fuzz {

int recording(const uint8_t* data, size_t size) {
  plan::Recording recording;
  try {
    recording = plan::read_recording({reinterpret_cast<const char*>(data), size}, "fuzz.slt");
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kValue, "recording: wrong kind of error", error.what());
    expect(std::string_view(error.what()).starts_with("fuzz.slt: "), "recording: the error names no file",
           error.what());
    return 0;
  }
  const std::string text = plan::recording_of(recording);
  expect(plan::recording_of(plan::read_recording(text, "again.slt")) == text,
         "recording: not the same after writing and reading");
  if (!plan::verify(recording.plan).ok()) return 0;
  const plan::Timeline timeline = plan::timeline_of(recording);
  for (const plan::BlameRow& row : plan::blame_of(recording.plan, timeline, plan::BlameBy::kActor))
    expect(row.total_ns == timeline.end_ns - timeline.begin_ns, "recording: an actor's time is not all of it",
           row.name);
  plan::latencies_of(recording.plan, timeline);
  plan::summary_str(recording);
  return 0;
}

}  // namespace sluice::fuzz
