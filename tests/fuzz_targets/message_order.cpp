#include "plan/record/message_order.h"

#include "base/error.h"
#include "fuzz_targets/targets.h"

namespace sluice::fuzz {

int message_order(const uint8_t* data, size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  try {
    const plan::MessageOrder order = plan::read_order(bytes, "fuzz.slm");
    expect(plan::order_of(order) == bytes, "message_order: not the same after reading and writing");
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kValue, "message_order: wrong kind of error", error.what());
    expect(std::string_view(error.what()).starts_with("fuzz.slm: byte "), "message_order: the error names no place",
           error.what());
  }
  return 0;
}

}  // namespace sluice::fuzz
