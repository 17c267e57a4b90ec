#pragma once
// Memory of tensors: at multiples of 64 bytes, and kept for the next one of the same size.
#include <cstddef>
#include <memory>

namespace sluice::serving {

// Thread-safe. What it has given may outlive it.
class BufferPool {
 public:
  static constexpr size_t kWindow = 1024;  // buffers

  // Keeps at most `bytes` that nobody uses; and of each size, with those in use, no more buffers than were in use at
  // once while the last kWindow to 2 kWindow were taken: what a surge of requests needed goes back to the system.
  explicit BufferPool(size_t bytes);
  std::shared_ptr<void> take(size_t bytes);  // null of 0 bytes; its content is anything
  size_t kept() const;                       // bytes that nobody uses

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sluice::serving
