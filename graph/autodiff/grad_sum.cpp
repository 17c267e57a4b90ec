#include "graph/autodiff/grad_sum.h"

#include <iterator>
#include <utility>
#include <vector>

#include "graph/ops/elementwise.h"
#include "graph/ops/movement.h"
#include "graph/origin.h"

namespace sluice {

void GradSum::add(Value grad) { sum_ = sum_.defined() ? ops::add(sum_, grad) : std::move(grad); }

void GradSum::add(GradPart part, std::shared_ptr<const Provenance> origin) {
  if (parts_ && !parts_->fits(part)) settle();
  if (!parts_) parts_ = std::make_unique<Parts>(Parts{part.axis, part.whole, std::move(origin)});
  parts_->by_begin.emplace(part.begin, std::move(part.value));
}

Value GradSum::take() {
  settle();
  return std::move(sum_);
}

void GradSum::settle() {
  if (!parts_) return;
  const std::unique_ptr<Parts> parts = std::move(parts_);
  const OriginScope belongs(Role::kBackward, parts->origin.get());
  add(parts->joined());
}

bool GradSum::Parts::fits(const GradPart& part) const {
  if (part.axis != axis) return false;
  const auto next = by_begin.lower_bound(part.begin);
  if (next != by_begin.end() && next->first < part.begin + part.value.shape()[axis]) return false;
  if (next == by_begin.begin()) return true;
  const auto& [begin, before] = *std::prev(next);
  return begin + before.shape()[axis] <= part.begin;
}

// Zeros fill the gaps: those behind a part, and those before the first.
Value GradSum::Parts::joined() const {
  std::vector<Value> pieces;
  for (auto part = by_begin.begin(); part != by_begin.end(); ++part) {
    const Value& value = part->second;
    const auto next = std::next(part);
    Ints low(value.rank(), 0), high(value.rank(), 0);
    low[axis] = part == by_begin.begin() ? part->first : 0;
    high[axis] = (next == by_begin.end() ? whole : next->first) - part->first - value.shape()[axis];
    pieces.push_back(low[axis] == 0 && high[axis] == 0 ? value : ops::pad(value, low, high));
  }
  return pieces.size() == 1 ? pieces[0] : ops::concat(pieces, axis);
}

}  // namespace sluice
