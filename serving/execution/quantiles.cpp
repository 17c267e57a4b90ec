#include "serving/execution/quantiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace sluice::serving {

namespace {

constexpr uint64_t kPerOctave = 16;
constexpr auto kPart = std::chrono::seconds(12);

// Up to 16 each number has its own; from there on an octave has 16.
size_t bucket_of(uint64_t us) {
  if (us < kPerOctave) return us;
  const auto octave = static_cast<uint64_t>(std::bit_width(us)) - 5;
  return octave * kPerOctave + (us >> octave);
}
double middle_of(size_t bucket) {
  if (bucket < 2 * kPerOctave) return static_cast<double>(bucket);
  const uint64_t octave = bucket / kPerOctave - 1, least = (bucket - octave * kPerOctave) << octave;
  return static_cast<double>(least) + static_cast<double>(uint64_t{1} << octave) / 2;
}

}  // namespace

int64_t Quantiles::number_of(Clock::time_point now) { return now.time_since_epoch() / kPart; }

void Quantiles::add(Clock::duration duration, Clock::time_point now) {
  const int64_t number = number_of(now);
  Part& part = parts_[static_cast<size_t>(number) % kParts];
  if (part.number != number) {
    part.number = number;
    part.count = 0;
    part.buckets.assign(kBuckets, 0);
  }
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  ++part.buckets[std::min(bucket_of(us < 0 ? 0 : static_cast<uint64_t>(us)), kBuckets - 1)];
  ++part.count;
}

double Quantiles::value(double quantile, Clock::time_point now) const {
  const int64_t oldest = number_of(now) - static_cast<int64_t>(kParts) + 1;
  uint64_t count = 0;
  for (const Part& part : parts_)
    if (part.number >= oldest) count += part.count;
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count))));
  uint64_t seen = 0;
  for (size_t b = 0; b < kBuckets; ++b) {
    for (const Part& part : parts_)
      if (part.number >= oldest && part.count > 0) seen += part.buckets[b];
    if (seen >= rank) return middle_of(b);
  }
  return middle_of(kBuckets - 1);
}

}  // namespace sluice::serving
