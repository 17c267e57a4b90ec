#include "base/sbp.h"

#include <charconv>

#include "base/error.h"
#include "base/nd_sbp.h"

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

std::string NdSbp::str() const {
  std::string text;
  for (const Sbp& sbp : axes_) text += (text.empty() ? "" : ",") + sbp.str();
  return text;
}

NdSbp parse_nd_sbp(std::string_view text) {
  std::vector<Sbp> axes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    axes.push_back(parse_sbp(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return NdSbp(std::move(axes));
}

}  // namespace sluice
