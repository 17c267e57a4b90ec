#include "base/sbp.h"

namespace sluice {

std::string Sbp::str() const {
  switch (kind) {
    case Kind::kSplit: return "S(" + std::to_string(axis) + ")";
    case Kind::kBroadcast: return "B";
    case Kind::kPartialSum: return "P";
  }
  return "?";
}

}  // namespace sluice
