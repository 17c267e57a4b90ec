// Every answer of base/shape.h is held against arithmetic in 128 bits, saturated beyond.
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/shape.h"
#include "base/tensor_spec.h"
#include "fuzz_targets/bytes.h"
#include "fuzz_targets/targets.h"

namespace sluice::fuzz {
namespace {

using Wide = __int128;
constexpr Wide kBeyond = Wide{1} << 120;

Wide times(Wide a, Wide b) {
  Wide r = 0;
  return __builtin_mul_overflow(a, b, &r) || r > kBeyond ? kBeyond : r < -kBeyond ? -kBeyond : r;
}
bool fits(Wide v) { return v >= std::numeric_limits<int64_t>::min() && v <= std::numeric_limits<int64_t>::max(); }

// The result of `compute`, or nothing where it refuses.
template <class Compute>
auto attempt(Compute compute) -> std::optional<decltype(compute())> {
  try {
    return compute();
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kValue || error.kind() == ErrorKind::kIndex, "shapes: wrong kind of error",
           error.what());
    return std::nullopt;
  }
}

bool usable(const Shape& s) {
  return attempt([&] { return numel(s); }).has_value();
}

void check_numel(const Shape& s) {
  Wide full = 1, elements = 1;
  bool negative = false;
  for (const int64_t d : s) {
    negative |= d < 0;
    full = times(full, d == 0 ? 1 : d);
    elements = d == 0 ? 0 : times(elements, d);
  }
  const std::optional<int64_t> n = attempt([&] { return numel(s); });
  expect(n.has_value() == (!negative && fits(full)), "shapes: numel accepts or refuses wrongly", s.str());
  if (n) expect(*n == elements, "shapes: numel is wrong", s.str());
}

void check_strides(const Shape& s) {
  if (!usable(s)) return;
  const Strides strides = contiguous_strides(s);
  expect(is_contiguous(s, strides) && is_dense(s, strides), "shapes: contiguous strides are not contiguous", s.str());
  expect(storage_extent(s, strides) == numel(s), "shapes: contiguous extent is not the size", s.str());
  if (s.rank() < 3) return;
  const Strides last = channels_last_strides(s);
  expect(is_dense(s, last) && storage_extent(s, last) == numel(s), "shapes: channels-last is not dense", s.str());
}

void check_extent(const Shape& s, const Strides& strides) {
  if (!usable(s)) return;
  Wide extent = 1;
  bool fitting = true;
  for (int i = 0; i < s.rank(); ++i) {
    const Wide span = times(s[i] - 1, strides[i]);
    extent += span;
    fitting &= fits(span) && fits(extent);
  }
  if (numel(s) == 0) extent = 0, fitting = true;
  const std::optional<int64_t> got = attempt([&] { return storage_extent(s, strides); });
  expect(got.has_value() == fitting && (!got || *got == extent), "shapes: extent is wrong",
         s.str() + " " + strides.str());
  is_contiguous(s, strides);
  is_dense(s, strides);
}

void check_broadcast(const Shape& a, const Shape& b) {
  const std::optional<Shape> out = attempt([&] { return broadcast_shapes(a, b, "shapes"); });
  const std::optional<Shape> swapped = attempt([&] { return broadcast_shapes(b, a, "shapes"); });
  expect(out.has_value() == swapped.has_value() && (!out || *out == *swapped), "shapes: broadcast is not symmetric",
         a.str() + " " + b.str());
  if (out) expect(broadcast_shapes(*out, a, "shapes") == *out, "shapes: broadcast is not a bound", a.str());
}

}  // namespace

int shapes(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const Shape a = bytes.shape(), b = bytes.shape();
  Strides strides;
  for (int i = 0; i < a.rank(); ++i) strides.push_back(bytes.integer());
  check_numel(a);
  check_numel(b);
  check_strides(a);
  check_extent(a, strides);
  check_broadcast(a, b);
  const int64_t axis = bytes.integer();
  const std::optional<int> normal = attempt([&] { return normalize_axis(axis, a.rank(), "shapes"); });
  if (normal) expect(*normal >= 0 && *normal < std::max(a.rank(), 1), "shapes: axis out of range", a.str());
  const auto wide = static_cast<uint64_t>(bytes.integer());
  attempt([&] { return checked_bytes(a, wide); });
  const std::optional<uint64_t> aligned = attempt([&] { return align_up(wide, 64); });
  if (aligned) expect(*aligned >= wide && *aligned % 64 == 0, "shapes: align_up is wrong");
  return 0;
}

}  // namespace sluice::fuzz
