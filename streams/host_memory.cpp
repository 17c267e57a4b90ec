#include "streams/host_memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "plan/plan.h"

namespace sluice {
namespace {

// Large memory is first touched, and later found, by far fewer pages of 2 MiB. Only whole ones inside of the block are
// asked for, so it takes no more memory than before; a system that has none goes on with small ones.
void ask_for_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] uint64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  if (bytes < 2 * kPage) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, last = (begin + bytes) / kPage * kPage;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace

void* allocate_host(const char* space, uint64_t bytes) {
  constexpr uint64_t kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - plan::kAlignment;
  void* data = nullptr;
  if (bytes <= kMost) {
    const uint64_t rounded = bytes == 0 ? plan::kAlignment : (bytes + plan::kAlignment - 1) & ~(plan::kAlignment - 1);
    data = std::aligned_alloc(plan::kAlignment, rounded);
    if (data != nullptr) ask_for_huge_pages(data, rounded);
  }
  if (data == nullptr) {
    fail(ErrorKind::kMemory, "memory: out of memory in {}: {} bytes requested; free tensors or use a smaller batch",
         space, bytes);
  }
  return data;
}

void deallocate_host(void* data) noexcept { std::free(data); }

}  // namespace sluice
