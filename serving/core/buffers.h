#pragma once
// Memory of tensors: at multiples of 64 bytes, and kept for the next one of the same size.
#include <cstddef>
#include <memory>

namespace sluice::serving {

// Thread-safe. What it has given may outlive it.
class BufferPool {
 public:
  // Keeps at most `bytes` that nobody uses.
  explicit BufferPool(size_t bytes);
  std::shared_ptr<void> take(size_t bytes);  // null of 0 bytes; its content is anything

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sluice::serving
