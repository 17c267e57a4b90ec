#pragma once
// Memory of tensors: at multiples of 64 bytes, and kept for the next one of the same size.
#include <cstddef>
#include <memory>

#include "serving/core/memory_budget.h"

namespace sluice::serving {

// From so many bytes on memory has pages of its own, which go back to the system whatever lies around them.
inline constexpr size_t kOwnPages = size_t{32} << 10;
// At a multiple of 64 bytes; its content is anything. Null where there is none.
void* allocate_pages(size_t bytes) noexcept;
void release_pages(size_t bytes, void* data) noexcept;

// Thread-safe. Buffers that it has given may outlive it.
class BufferPool {
 public:
  static constexpr size_t kWindow = 1024;  // buffers

  // Keeps at most `bytes` that nobody uses; and of each size, with those in use, no more buffers than were in use at
  // once while the last kWindow to 2 kWindow were taken: what a surge of requests needed goes back to the system. With
  // a budget, what it keeps counts there, is no more than an eighth of it, and goes when requests need the room.
  explicit BufferPool(size_t bytes, std::shared_ptr<MemoryBudget> budget = nullptr);
  // Null of 0 bytes; its content is anything. It counts in `share` as long as somebody has it; throws what take() of
  // the share does.
  std::shared_ptr<void> take(size_t bytes, const MemoryPtr& share = nullptr);

  // For bytes that come slowly, if at all: they count as they come.
  class Arriving {
   public:
    std::shared_ptr<void> data() const;
    void come(size_t bytes);  // so many more, before they are there. Throws as MemoryShare::take

   private:
    friend class BufferPool;
    struct Owner;
    std::shared_ptr<Owner> owner_;
  };
  Arriving take_arriving(size_t bytes, const MemoryPtr& share);

  size_t kept() const;  // bytes that nobody uses

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sluice::serving
