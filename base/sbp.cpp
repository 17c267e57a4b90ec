#include "base/sbp.h"

#include <charconv>

#include "base/error.h"

namespace sluice {

std::string Sbp::str() const {
  switch (kind) {
    case Kind::kSplit: return "S(" + std::to_string(axis) + ")";
    case Kind::kBroadcast: return "B";
    case Kind::kPartialSum: return "P";
  }
  return "?";
}

Sbp parse_sbp(std::string_view text) {
  if (text == "B") return Sbp::broadcast();
  if (text == "P") return Sbp::partial_sum();
  int axis = -1;
  if (text.starts_with("S(") && text.ends_with(")")) {
    const char *begin = text.data() + 2, *last = text.data() + text.size() - 1;
    const auto [end, error] = std::from_chars(begin, last, axis);
    if (error != std::errc() || end != last) axis = -1;
  }
  SLUICE_CHECK(axis >= 0, "sbp: unknown: '{}'; must be S(axis) with an axis >= 0, B or P", text);
  return Sbp::split(axis);
}

}  // namespace sluice
