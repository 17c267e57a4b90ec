#include "fuzz_targets/targets.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/verify.h"

namespace sluice::fuzz {

int plan_json(const uint8_t* data, size_t size) {
  plan::Plan plan;
  try {
    plan = plan::from_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kValue, "plan_json: wrong kind of error", error.what());
    expect(std::string_view(error.what()).starts_with("fuzz.json: "), "plan_json: the error names no file",
           error.what());
    return 0;
  }
  const std::string text = plan::to_json(plan);
  const std::string again = plan::to_json(plan::from_json(text, "again.json"));
  expect(again == text, "plan_json: not the same after writing and reading", text + "\n" + again);
  const plan::VerifyReport report = plan::verify(plan);
  for (const plan::Problem& problem : report.problems) {
    expect(!problem.text.empty() && !problem.concern.empty(), "plan_json: a problem without text", text);
  }
  if (report.ok()) plan::ledger(plan);
  return 0;
}

}  // namespace sluice::fuzz
