#include "cuda/fake_driver/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace fake_cuda {
namespace {

constexpr int kJunk = 0xA5;

void* mapped(int protection, int file, uint64_t bytes) {
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (data == MAP_FAILED) std::abort();
  return data;
}

}  // namespace

Memory::Memory() {
  const int file = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kCapacity)) != 0) std::abort();
  device_ = static_cast<std::byte*>(mapped(PROT_NONE, file, kCapacity));
  host_ = static_cast<std::byte*>(mapped(PROT_READ | PROT_WRITE, file, kCapacity));
  close(file);
}

Memory::~Memory() {
  munmap(device_, kCapacity);
  munmap(host_, kCapacity);
}

uintptr_t Memory::allocate(uint64_t bytes) {
  const uint64_t rounded = (bytes + kGrain - 1) / kGrain * kGrain;
  uintptr_t start = 0;
  if (const auto hole = unused_.find(rounded); hole != unused_.end()) {
    start = hole->second;
    unused_.erase(hole);
  } else {
    if (bytes > kCapacity || rounded > kCapacity - fresh_) return 0;
    start = reinterpret_cast<uintptr_t>(device_) + fresh_;
    fresh_ += rounded;
  }
  std::memset(shadow(reinterpret_cast<void*>(start)), kJunk, bytes);
  blocks_[start] = bytes;
  used_ += bytes;
  return start;
}

uint64_t Memory::block(uintptr_t data) const {
  const auto block = blocks_.find(data);
  return block == blocks_.end() ? 0 : block->second;
}

void Memory::free(uintptr_t data) {
  const auto block = blocks_.find(data);
  const uint64_t rounded = (block->second + kGrain - 1) / kGrain * kGrain;
  std::memset(shadow(reinterpret_cast<void*>(data)), kJunk, block->second);
  used_ -= block->second;
  unused_.emplace(rounded, data);
  blocks_.erase(block);
}

bool Memory::is_device(const void* data) const {
  const auto* at = static_cast<const std::byte*>(data);
  return at >= device_ && at < device_ + kCapacity;
}

bool Memory::alive(const void* data, uint64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  auto block = blocks_.upper_bound(begin);
  if (block == blocks_.begin()) return false;
  --block;
  return begin + bytes <= block->first + block->second;
}

void* Memory::shadow(const void* data) const {
  if (!is_device(data)) return const_cast<void*>(data);
  return host_ + (static_cast<const std::byte*>(data) - device_);
}

}  // namespace fake_cuda
