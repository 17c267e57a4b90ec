#include <algorithm>
#include <exception>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "memory/allocator.h"
#include "memory/counted_bytes.h"
#include "streams/host_memory.h"

namespace sluice {
namespace {

class HostAllocator final : public Allocator {
 public:
  HostAllocator(std::shared_ptr<CountedBytes> total, HostMemory memory)
      : total_(std::move(total)), memory_(std::move(memory)) {
    SLUICE_CHECK((memory_.allocate == nullptr) == (memory_.release == nullptr),
                 "memory: only one of allocate and release is given; give both or none");
  }
  void* allocate(uint64_t bytes) override {
    ReservedBytes reserved(total_.get(), bytes);
    if (total_ != nullptr) total_->make_room();
    void* data = memory_.allocate == nullptr ? allocate_host("host", bytes) : allocate_by_caller(bytes);
    reserved.keep();
    counted_.add(bytes);
    log(LogLevel::kTrace, LogArea::kMemory, "host: {} bytes allocated", bytes);
    return data;
  }
  void deallocate(void* data, uint64_t bytes) noexcept override {
    if (memory_.release == nullptr) {
      deallocate_host(data);
    } else {
      release_by_caller(data, bytes);
    }
    counted_.remove(bytes);
    if (total_ != nullptr) total_->remove(bytes);
  }
  AllocatorStats stats() const override { return counted_.stats(); }
  void reset_peak() override { counted_.reset_peak(); }

 private:
  static uint64_t at_least_one(uint64_t bytes) { return std::max<uint64_t>(bytes, 1); }
  void* allocate_by_caller(uint64_t bytes) const {
    void* const data = call_caller(bytes);
    SLUICE_CHECK_KIND(kMemory, data != nullptr,
                      "memory: out of memory in host: {} bytes requested; the program's allocate() gave none", bytes);
    if (reinterpret_cast<uintptr_t>(data) % plan::kAlignment != 0) {
      release_by_caller(data, bytes);
      fail(ErrorKind::kMemory, "memory: the program's allocate() gave {}; it must be a multiple of {}", data,
           plan::kAlignment);
    }
    return data;
  }

  // The functions are the program's. An exception from them would end a thread that knows nothing of it.
  void* call_caller(uint64_t bytes) const {
    std::string thrown;
    try {
      return memory_.allocate(at_least_one(bytes), plan::kAlignment);
    } catch (const std::exception& error) {
      thrown = error.what();
    } catch (...) {
      thrown = "something that is no std::exception";
    }
    fail(ErrorKind::kMemory,
         "memory: out of memory in host: {} bytes requested; the program's allocate() threw: {}; it must return null",
         bytes, thrown);
  }
  void release_by_caller(void* data, uint64_t bytes) const noexcept {
    try {
      memory_.release(data, at_least_one(bytes));
    } catch (const std::exception& error) {
      log(LogLevel::kError, LogArea::kMemory, "host: the program's release() threw: {}; it must not", error.what());
    } catch (...) {
      log(LogLevel::kError, LogArea::kMemory,
          "host: the program's release() threw something that is no std::exception");
    }
  }

  const std::shared_ptr<CountedBytes> total_;
  const HostMemory memory_;
  CountedBytes counted_;
};

}  // namespace

std::shared_ptr<Allocator> make_host_allocator() { return make_host_allocator(nullptr); }
std::shared_ptr<Allocator> make_host_allocator(std::shared_ptr<CountedBytes> total, HostMemory memory) {
  return std::make_shared<HostAllocator>(std::move(total), std::move(memory));
}

}  // namespace sluice
