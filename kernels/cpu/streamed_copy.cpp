#include "kernels/cpu/streamed_copy.h"

#include <cstring>
#include <limits>

#if defined(__SSE2__)
#include <emmintrin.h>
#include <unistd.h>
#endif

#include <algorithm>

namespace sluice::cpu {

#if defined(__SSE2__)

int64_t streaming_bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  static const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return bytes;
#endif
  return std::numeric_limits<int64_t>::max();
}

void streamed_copy(const void* from, void* to, int64_t bytes) {
  constexpr int64_t kLine = 64;  // parts of a line would be read and written one by one
  const auto* x = static_cast<const char*>(from);
  auto* y = static_cast<char*>(to);
  const int64_t head = std::min(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(y) % kLine));
  std::memcpy(y, x, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine)
    for (int64_t part = 0; part < kLine; part += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(y + at + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + at + part)));
  std::memcpy(y + at, x + at, static_cast<size_t>(bytes - at));
}

void finish_streams() { _mm_sfence(); }

#else

int64_t streaming_bytes() { return std::numeric_limits<int64_t>::max(); }
void streamed_copy(const void* from, void* to, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }
void finish_streams() {}

#endif

}  // namespace sluice::cpu
