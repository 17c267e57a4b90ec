#pragma once
// Bodies as they are packed.
#include "fixture.h"
#include "serving/http/compression.h"

namespace sluice::serving::test {

inline std::string packed(const std::string& text, Coding coding) {
  Text out;
  pack({text}, coding, out).finish();
  return std::string(out);
}
inline std::string unpacked(const std::string& body, Coding coding) {
  Text out;
  unpack(body, coding, size_t{64} << 20, out).finish();
  return std::string(out);
}

}  // namespace sluice::serving::test
