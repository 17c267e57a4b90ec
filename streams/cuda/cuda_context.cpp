#include "streams/cuda/cuda_context.h"

#include <unistd.h>

#include <limits>

#include "plan/plan.h"
#include "streams/cuda/near_node.h"

namespace sluice::cuda {
namespace {

// One thread moves a failure: to = to.ticket ? to : from, marked with kMoved. Loads of `from` are volatile, since it
// lies in host memory that is written between launches.
constexpr const char* kMergeFailures = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry sluice_merge_failures(.param .u64 param_to, .param .u64 param_from)
{
  .reg .pred %skip, %found;
  .reg .u64 %to, %from, %ticket, %value;
  ld.param.u64 %to, [param_to];
  ld.param.u64 %from, [param_from];
  ld.volatile.u64 %ticket, [%to];
  setp.ne.u64 %skip, %ticket, 0;
  @%skip bra done;
  ld.volatile.u64 %ticket, [%from];
  ld.volatile.u64 %value, [%from+8];
  st.volatile.u64 [%to+8], %value;
  ld.volatile.u64 %value, [%from+16];
  st.volatile.u64 [%to+16], %value;
  ld.volatile.u64 %value, [%from+24];
  st.volatile.u64 [%to+24], %value;
  ld.volatile.u64 %value, [%from+32];
  st.volatile.u64 [%to+32], %value;
  setp.ne.u64 %found, %ticket, 0;
  @%found or.b64 %ticket, %ticket, 0x4000000000000000;
  st.volatile.u64 [%to], %ticket;
done:
  ret;
}
)";
static_assert(sizeof(LateFailure) == 40 && offsetof(LateFailure, values) == 8 && kMoved == 0x4000000000000000,
              "as the code above has it");

constexpr size_t kWordsPerPage = 128;

// CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, which older headers do not name.
constexpr auto kNodeOfHost = static_cast<CUdevice_attribute>(134);

// After these the driver refuses all further work in the context.
bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_CONTAINED: return true;
    default: return false;
  }
}

uint64_t host_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : 0;
}

}  // namespace

CudaContext::CudaContext(DeviceId device_id, const Driver& the_driver, uint64_t pinned_bytes)
    : id(device_id), driver(the_driver), pinned_limit_(pinned_bytes != 0 ? pinned_bytes : host_memory() / 4) {
  int count = 0;
  check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  SLUICE_CHECK_KIND(kUnsupported, id.index < count, "no such device: the NVIDIA driver has {}; indices start at 0",
                    count);
  check(driver.cuDeviceGet(&device_, id.index), "cuDeviceGet");
  char name[256] = {};
  check(driver.cuDeviceGetName(name, sizeof(name) - 1, device_), "cuDeviceGetName");
  name_ = name;
  size_t bytes = 0;
  check(driver.cuDeviceTotalMem(&bytes, device_), "cuDeviceTotalMem");
  memory_bytes_ = bytes;
  // Threads that wait for the device park.
  check(driver.cuDevicePrimaryCtxSetFlags(device_, CU_CTX_SCHED_BLOCKING_SYNC), "cuDevicePrimaryCtxSetFlags");
  check(driver.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

// A poisoned context gives nothing back but itself.
CudaContext::~CudaContext() {
  {
    const CurrentContext current(*this);
    for (CUevent event : events_) static_cast<void>(driver.cuEventDestroy(event));
    for (void* page : word_pages_) static_cast<void>(driver.cuMemFreeHost(page));
    for (const auto& [start, bytes] : blocks_) static_cast<void>(driver.cuMemFree(start));
    for (const auto& [owner, module] : modules_) {
      if (module != nullptr) static_cast<void>(driver.cuModuleUnload(module));
    }
  }
  static_cast<void>(driver.cuDevicePrimaryCtxRelease(device_));
}

void CudaContext::make_current() const {
  CUcontext now = nullptr;
  if (driver.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context_) return;
  static_cast<void>(driver.cuCtxSetCurrent(context_));  // the call that follows tells
}

Status CudaContext::status_of(CUresult result, const char* call, const std::string& launched_last) {
  if (result == CUDA_SUCCESS) return {};
  if (is_poisoned_.load(std::memory_order_acquire)) return poisoned();
  const std::string text = driver.text(result);
  if (!is_sticky(result)) return {ErrorKind::kRuntime, fmt::format("{}: {}: {}", id.str(), call, text)};
  std::lock_guard lock(poison_mutex_);
  if (poison_.ok()) {
    poison_ = {ErrorKind::kDevice,
               fmt::format("{}: the device is poisoned: {}, told by {}{}{}; it can be used again by a new process only",
                           id.str(), text, call,
                           launched_last.empty() ? "" : "; its stream had launched last: ", launched_last)};
    is_poisoned_.store(true, std::memory_order_release);
  }
  return poison_;
}

Status CudaContext::poisoned() const {
  if (!is_poisoned_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(poison_mutex_);
  return poison_;
}

void* CudaContext::allocate(uint64_t bytes) {
  poisoned().throw_if_error();
  const CurrentContext current(*this);
  CUdeviceptr data = 0;
  constexpr uint64_t kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const CUresult result =
      bytes > kMost ? CUDA_ERROR_OUT_OF_MEMORY : driver.cuMemAlloc(&data, std::max<uint64_t>(bytes, plan::kAlignment));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free = 0, total = 0;
    check(driver.cuMemGetInfo(&free, &total), "cuMemGetInfo");
    fail(ErrorKind::kMemory,
         "memory: out of memory in {}: {} bytes requested, {} of {} free, other processes counted; free tensors or "
         "use a smaller batch",
         id.str(), bytes, free, total);
  }
  check(result, "cuMemAlloc");
  std::unique_lock lock(memory_mutex_);
  blocks_[data] = bytes;
  return reinterpret_cast<void*>(data);
}

void CudaContext::deallocate(void* data) {
  {
    std::unique_lock lock(memory_mutex_);
    const auto block = blocks_.find(reinterpret_cast<uintptr_t>(data));
    SLUICE_CHECK(block != blocks_.end(), "memory: {} does not own {}; free memory on the device that gave it", id.str(),
                 data);
    blocks_.erase(block);
  }
  const CurrentContext current(*this);
  static_cast<void>(status_of(driver.cuMemFree(reinterpret_cast<CUdeviceptr>(data)), "cuMemFree"));
}

bool CudaContext::owns(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::shared_lock lock(memory_mutex_);
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return false;
  --block;
  return address <= block->first + block->second;  // the end itself is the address of an empty view
}

// The driver returns when it has read pageable memory, which is before what it read has arrived; streams of ours do not
// wait for the legacy stream on which it travels.
void CudaContext::write(void* data, const void* host, uint64_t bytes) {
  const CurrentContext current(*this);
  check(driver.cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(data), host, bytes), "cuMemcpyHtoD");
  check(driver.cuStreamSynchronize(CU_STREAM_LEGACY), "cuStreamSynchronize");
}

void* CudaContext::allocate_pinned(uint64_t bytes) {
  poisoned().throw_if_error();
  {
    std::unique_lock lock(memory_mutex_);
    if (bytes > pinned_limit_ || pinned_bytes_ > pinned_limit_ - bytes) {
      fail(
          ErrorKind::kMemory,
          "memory: out of pinned host memory for {}: {} bytes requested, {} of {} in use; use a smaller batch or lower "
          "quotas",
          id.str(), bytes, pinned_bytes_, pinned_limit_);
    }
    pinned_bytes_ += bytes;
  }
  const CurrentContext current(*this);
  int node = kNoNode;
  if (driver.cuDeviceGetAttribute(&node, kNodeOfHost, device_) != CUDA_SUCCESS) node = kNoNode;  // an older driver
  const NearNode near(node);
  void* data = nullptr;
  const CUresult result =
      driver.cuMemHostAlloc(&data, std::max<uint64_t>(bytes, plan::kAlignment), CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_SUCCESS) return data;
  std::unique_lock lock(memory_mutex_);
  pinned_bytes_ -= bytes;
  lock.unlock();
  SLUICE_CHECK_KIND(kMemory, result != CUDA_ERROR_OUT_OF_MEMORY,
                    "memory: out of pinned host memory for {}: {} bytes requested; use a smaller batch or lower quotas",
                    id.str(), bytes);
  check(result, "cuMemHostAlloc");
  return nullptr;
}

void CudaContext::deallocate_pinned(void* data, uint64_t bytes) {
  {
    const CurrentContext current(*this);
    static_cast<void>(status_of(driver.cuMemFreeHost(data), "cuMemFreeHost"));
  }
  std::unique_lock lock(memory_mutex_);
  pinned_bytes_ -= bytes;
}

CUevent CudaContext::take_event() {
  poisoned().throw_if_error();
  const CurrentContext current(*this);
  std::lock_guard lock(pool_mutex_);
  CUevent event = nullptr;
  if (!events_.empty()) {
    event = events_.back();
    events_.pop_back();
    return event;
  }
  check(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "cuEventCreate");
  return event;
}

void CudaContext::give_event(CUevent event) {
  std::lock_guard lock(pool_mutex_);
  events_.push_back(event);
}

LateFailure* CudaContext::take_word() {
  const CurrentContext current(*this);
  std::lock_guard lock(pool_mutex_);
  if (words_.empty()) {
    void* page = nullptr;
    check(driver.cuMemHostAlloc(&page, kWordsPerPage * sizeof(LateFailure), CU_MEMHOSTALLOC_PORTABLE),
          "cuMemHostAlloc");
    word_pages_.push_back(page);
    for (size_t i = 0; i < kWordsPerPage; ++i) words_.push_back(static_cast<LateFailure*>(page) + i);
  }
  LateFailure* word = words_.back();
  words_.pop_back();
  *word = {};
  return word;
}

void CudaContext::give_word(LateFailure* word) {
  std::lock_guard lock(pool_mutex_);
  words_.push_back(word);
}

CUfunction CudaContext::function(const std::shared_ptr<const void>& owner, const void* image, const char* entry) {
  const CurrentContext current(*this);
  std::lock_guard lock(pool_mutex_);
  CUmodule& module = modules_[owner];
  if (module == nullptr) check(driver.cuModuleLoadData(&module, image), "cuModuleLoadData");
  CUfunction function = nullptr;
  check(driver.cuModuleGetFunction(&function, module, entry), "cuModuleGetFunction");
  return function;
}

CUfunction CudaContext::merge_failures() {
  static const std::shared_ptr<const void> owner(kMergeFailures, [](const void*) {});
  {
    std::lock_guard lock(pool_mutex_);
    if (merge_ != nullptr) return merge_;
  }
  const CUfunction function = this->function(owner, kMergeFailures, "sluice_merge_failures");
  std::lock_guard lock(pool_mutex_);
  return merge_ = function;
}

CurrentContext::CurrentContext(const CudaContext& context) : driver_(context.driver) {
  static_cast<void>(driver_.cuCtxGetCurrent(&before_));
  context.make_current();
}

CurrentContext::~CurrentContext() { static_cast<void>(driver_.cuCtxSetCurrent(before_)); }

}  // namespace sluice::cuda
