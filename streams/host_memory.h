#pragma once
// Aligned memory of the host.
#include <cstdint>

namespace sluice {

// kAlignment-aligned, never null (zero bytes still give a distinct address). Throws kMemory naming `space`.
void* allocate_host(const char* space, uint64_t bytes);
void deallocate_host(void* data) noexcept;

}  // namespace sluice
