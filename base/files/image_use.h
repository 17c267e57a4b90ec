#pragma once
// The most that images of a stage have taken, for tables of what is planned and what is used.
#include <atomic>
#include <cstdint>

namespace sluice {

// Counts of one stage over all its steps, from several threads at once. What was refused, since it is more than the
// stage allows, is among them.
struct ImageUse {
  std::atomic<int64_t> images{0};
  std::atomic<int64_t> file_bytes{0};     // of the largest file
  std::atomic<int64_t> pixels{0};         // of the largest image
  std::atomic<int64_t> decoder_bytes{0};  // that a decoder has taken for an image, or wanted

  static void raise(std::atomic<int64_t>& most, int64_t value) {
    int64_t before = most.load(std::memory_order_relaxed);
    while (before < value && !most.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
    }
  }
};

// The counts of the stages whose attribute `meter` is this number. They stay for as long as the process lives.
// Thread-safe.
ImageUse& image_use(int64_t meter);

}  // namespace sluice
