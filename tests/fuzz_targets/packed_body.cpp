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
  const auto memory = std::make_shared<serving::MemoryBudget>(4 * kMost);
  serving::MemoryShare share(memory, 4 * kMost);
  try {
    const std::string text = serving::unpack(body, coding, kMost, &share);
    expect(text.size() <= kMost, "packed_body: more than is allowed");
    expect(share.held() == text.size(), "packed_body: memory that was not counted");
    expect(serving::unpack(serving::pack(text, coding), coding, kMost) == text,
           "packed_body: not the same when it is packed again");
  } catch (const serving::Error& error) {
    expect(error.code() == serving::Code::kInvalidArgument || error.code() == serving::Code::kTooLarge,
           "packed_body: kind of a refusal", error.what());
    expect(share.held() <= 2 * kMost, "packed_body: more memory than is allowed");
  }
  return 0;
}

}  // namespace sluice::fuzz
