#include "fuzz_targets/targets.h"
#include "serving/core/error.h"
#include "serving/http/compression.h"

namespace sluice::fuzz {

int packed_body(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const serving::Coding coding = data[0] % 2 == 0 ? serving::Coding::kGzip : serving::Coding::kDeflate;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  serving::accepted_coding(body.substr(0, 200));
  constexpr size_t kMost = size_t{1} << 16;
  const auto memory = std::make_shared<serving::MemoryBudget>(16 * kMost);
  const auto share = std::make_shared<serving::MemoryShare>(memory, 16 * kMost);
  try {
    serving::Text text(share), packed(share), again(share);
    serving::unpack(body, coding, kMost, text).finish();
    expect(text.size() <= kMost, "packed_body: more than is allowed");
    expect(share->held() >= text.size(), "packed_body: memory that was not counted");
    serving::pack({text}, coding, packed).finish();
    serving::unpack(packed, coding, kMost, again).finish();
    expect(again == text, "packed_body: not the same when it is packed again");
  } catch (const serving::Error& error) {
    expect(error.code() == serving::Code::kInvalidArgument || error.code() == serving::Code::kTooLarge,
           "packed_body: kind of a refusal", error.what());
  }
  expect(memory->held() == 0, "packed_body: memory that is counted and not there");
  return 0;
}

}  // namespace sluice::fuzz
