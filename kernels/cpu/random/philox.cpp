#include "kernels/cpu/random/philox.h"

#include <algorithm>

#include "kernels/cpu/math/vector_math.h"

namespace sluice::cpu {
namespace {

constexpr int kCounters = 16;

SLUICE_CLONES void make_words(const PhiloxStream& s, int64_t group, uint32_t* out) {
  alignas(64) uint32_t c0[kCounters], c1[kCounters], c2[kCounters], c3[kCounters];
  for (int j = 0; j < kCounters; ++j) {
    const uint64_t counter = static_cast<uint64_t>(group) * kCounters + static_cast<uint64_t>(j);
    c0[j] = static_cast<uint32_t>(counter);
    c1[j] = static_cast<uint32_t>(counter >> 32) ^ s.mixed_high;
    c2[j] = s.salt;
    c3[j] = s.step;
  }
  uint32_t k0 = s.key[0], k1 = s.key[1];
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 1  // unrolled entirely, the loop would no longer be vectorised
    for (int j = 0; j < kCounters; ++j) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0[j], p1 = uint64_t{0xCD9E8D57u} * c2[j];
      const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ k0,
                     n2 = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ k1;
      c0[j] = n0;
      c1[j] = static_cast<uint32_t>(p1);
      c2[j] = n2;
      c3[j] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int j = 0; j < kCounters; ++j) {
    out[j] = c0[j];
    out[kCounters + j] = c1[j];
    out[2 * kCounters + j] = c2[j];
    out[3 * kCounters + j] = c3[j];
  }
}

}  // namespace

PhiloxStream::PhiloxStream(const int64_t* state, int64_t salt64, uint32_t lane) {
  const uint64_t seed = static_cast<uint64_t>(state[0]), at = static_cast<uint64_t>(state[1]);
  const uint64_t wide_salt = static_cast<uint64_t>(salt64);
  key[0] = static_cast<uint32_t>(seed);
  key[1] = static_cast<uint32_t>(seed >> 32);
  salt = static_cast<uint32_t>(wide_salt);
  step = static_cast<uint32_t>(at);
  mixed_high = static_cast<uint32_t>(wide_salt >> 32) * 0x9E3779B9u ^ static_cast<uint32_t>(at >> 32) * 0x85EBCA6Bu ^
               lane * 0xC2B2AE35u;
}

void PhiloxStream::words(int64_t group, uint32_t* out) const { make_words(*this, group, out); }

void PhiloxStream::words_at(int64_t begin, int64_t n, uint32_t* out) const {
  alignas(64) uint32_t some[kPhiloxGroup];
  for (int64_t at = begin; at < begin + n;) {
    const int64_t group = at / kPhiloxGroup, inside = at % kPhiloxGroup;
    const int64_t m = std::min(kPhiloxGroup - inside, begin + n - at);
    if (m == kPhiloxGroup) {
      words(group, out + (at - begin));
    } else {
      words(group, some);
      std::copy(some + inside, some + inside + m, out + (at - begin));
    }
    at += m;
  }
}

}  // namespace sluice::cpu
