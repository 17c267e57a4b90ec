#pragma once
// Memory that ends, or begins, at a page that nobody may touch: who reads or writes beyond it is stopped at once.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace sluice::test {

enum class Placed : uint8_t { kAtEnd, kAtBegin };

class GuardedMemory {
 public:
  // At the end, but for the bytes up to a multiple of `alignment`, in which intact() sees what was written.
  GuardedMemory(uint64_t bytes, uint64_t alignment, Placed placed) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const auto up = [](uint64_t n, uint64_t to) { return (n + to - 1) / to * to; };
    const uint64_t filled = up(bytes, alignment), usable = up(std::max<uint64_t>(filled, 1), page);
    mapped_ = usable + 2 * kGuard;
    void* const at = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(at);
    if (mprotect(base_ + kGuard, usable, PROT_READ | PROT_WRITE) != 0) {
      munmap(base_, mapped_);
      throw std::bad_alloc();
    }
    data_ = base_ + kGuard + (placed == Placed::kAtEnd ? usable - filled : 0);
    bytes_ = bytes;
    slack_ = static_cast<uint64_t>(base_ + kGuard + usable - data_) - bytes;
    std::memset(data_ + bytes_, kFill, slack_);
  }
  ~GuardedMemory() { munmap(base_, mapped_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool intact() const {
    const auto* const slack = reinterpret_cast<const unsigned char*>(data_ + bytes_);
    return std::all_of(slack, slack + slack_, [](unsigned char c) { return c == kFill; });
  }
  // Whether the address is in what nobody may touch before or behind this.
  bool near(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return base_ <= at && at < base_ + mapped_;
  }

 private:
  static constexpr uint64_t kGuard = 16 << 20;  // of addresses alone
  static constexpr unsigned char kFill = 0x5a;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t mapped_ = 0, bytes_ = 0, slack_ = 0;
};

}  // namespace sluice::test
