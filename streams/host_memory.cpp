#include "streams/host_memory.h"

#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "plan/plan.h"

namespace sluice {

void* allocate_host(const char* space, uint64_t bytes) {
  constexpr uint64_t kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - plan::kAlignment;
  void* data = nullptr;
  if (bytes <= kMost) {
    const uint64_t rounded = bytes == 0 ? plan::kAlignment : (bytes + plan::kAlignment - 1) & ~(plan::kAlignment - 1);
    data = std::aligned_alloc(plan::kAlignment, rounded);
  }
  if (data == nullptr) {
    fail(ErrorKind::kMemory, "memory: out of memory in {}: {} bytes requested; free tensors or use a smaller batch",
         space, bytes);
  }
  return data;
}

void deallocate_host(void* data) noexcept { std::free(data); }

}  // namespace sluice
