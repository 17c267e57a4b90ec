#pragma once
// Device memory that the host cannot touch, and pinned memory.
#include <cstdint>
#include <map>
#include <string>

namespace fake_cuda {

// A range of addresses without access, and the same memory elsewhere with it.
class Memory {
 public:
  Memory();
  ~Memory();
  uint64_t capacity() const { return kCapacity; }
  uint64_t used() const { return used_; }
  // 0 when there is not enough. New memory holds junk.
  uintptr_t allocate(uint64_t bytes);
  // Bytes of the block, or 0 when there is none at `data`.
  uint64_t block(uintptr_t data) const;
  void free(uintptr_t data);
  bool is_device(const void* data) const;
  // The range lies in one block.
  bool alive(const void* data, uint64_t bytes) const;
  void* shadow(const void* data) const;

 private:
  static constexpr uint64_t kCapacity = uint64_t{8} << 30, kGrain = 512;
  std::byte* device_ = nullptr;
  std::byte* host_ = nullptr;
  std::map<uintptr_t, uint64_t> blocks_;       // start -> bytes asked for
  std::multimap<uint64_t, uintptr_t> unused_;  // bytes -> start
  uint64_t fresh_ = 0, used_ = 0;
};

}  // namespace fake_cuda
