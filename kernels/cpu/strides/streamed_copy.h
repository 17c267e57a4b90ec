#pragma once
// Memory beyond the caches: writes past them, for results larger than what stays in them, and reads ahead.
#include <cstdint>

namespace sluice::cpu {

inline constexpr int64_t kStreamedLine = 64;  // bytes; parts of one would be read and written one by one

// The bytes of the cache that the cores share; INT64_MAX where they are unknown, or where there are no such stores.
int64_t streaming_bytes();

// Copies without reading the lines that are overwritten. REQUIRES: the two do not overlap; finish_streams() follows on
// the same thread before another one reads what was written.
void streamed_copy(const void* from, void* to, int64_t bytes);
void finish_streams();

// Brings what will be read or written soon near, into the second-level cache. Any address will do.
void fetch_lines(const void* from, int64_t bytes);

}  // namespace sluice::cpu
