#include "kernels/cuda/nccl_group.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "base/interrupt.h"
#include "streams/collective/communicator.h"

namespace sluice::cuda {

std::shared_ptr<NcclGroup> NcclGroup::of(const DeviceId& device, collective::Communicator& ranks) {
  static std::mutex mutex;
  static std::map<const collective::Communicator*, std::weak_ptr<NcclGroup>> groups;
  std::unique_lock lock(mutex);
  std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
  if (const auto known = groups.find(&ranks); known != groups.end()) {
    if (auto group = known->second.lock()) return group;
  }
  lock.unlock();  // other ranks of this process join meanwhile
  std::shared_ptr<NcclGroup> made(new NcclGroup(device, ranks));
  lock.lock();
  groups[&ranks] = made;
  return made;
}

NcclGroup::NcclGroup(const DeviceId& device, collective::Communicator& ranks)
    : nccl_(*nccl()), context_(device, driver(), 0), ranks_(ranks) {
  try {
    join();
  } catch (const Error& error) {
    break_off(error.what());
    throw Error(error.kind(), fmt::format("NCCL on {}: {}", device.str(), error.what()));
  }
}

NcclGroup::~NcclGroup() {
  if (comm_ == nullptr) return;
  const CurrentContext current(context_);
  // Unlike a proper end it waits for nobody. Nothing is under way, here or in other ranks: join() and run() end with a
  // barrier.
  static_cast<void>(nccl_.ncclCommAbort(comm_));
}

int NcclGroup::size() const { return ranks_.size(); }

void NcclGroup::join() {
  struct {
    ncclUniqueId id = {};
    ncclResult_t result = ncclSuccess;
  } first;
  if (ranks_.rank() == 0) first.result = nccl_.ncclGetUniqueId(&first.id);
  ranks_.broadcast(&first, sizeof(first), 0);
  check(first.result);
  const CurrentContext current(context_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  settle(nccl_.ncclCommInitRankConfig(&comm_, ranks_.size(), first.id, ranks_.rank(), &config));
  ranks_.barrier();
}

void NcclGroup::check(ncclResult_t result) const {
  SLUICE_CHECK_KIND(kRuntime, result == ncclSuccess || result == ncclInProgress, "NCCL: {}",
                    nccl_.ncclGetErrorString(result));
}

void NcclGroup::wait_until(const std::function<bool()>& done) const {
  const auto start = std::chrono::steady_clock::now();
  for (int turn = 0; !done(); ++turn) {
    ranks_.failure().throw_if_error();
    check_interrupt();
    SLUICE_CHECK_KIND(kTimeout, std::chrono::steady_clock::now() - start < ranks_.timeout(),
                      "NCCL has not ended in {} ms; all ranks are there, so look at the network between the GPUs",
                      ranks_.timeout().count());
    if (turn < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Calls go on after they return; the next may not come before.
void NcclGroup::settle(ncclResult_t result) const {
  check(result);
  if (result == ncclSuccess) return;
  wait_until([&] {
    ncclResult_t state = ncclSuccess;
    check(nccl_.ncclCommGetAsyncError(comm_, &state));
    check(state);
    return state != ncclInProgress;
  });
}

void NcclGroup::break_off(const std::string& why) noexcept {
  ranks_.fail(why);
  if (comm_ == nullptr) return;
  const CurrentContext current(context_);
  static_cast<void>(nccl_.ncclCommAbort(comm_));
  comm_ = nullptr;
}

void NcclGroup::run(const std::string& call, CudaStream& stream, const Queue& queue) {
  try {
    if (const Status ready = stream.synchronize(); !ready.ok()) {
      ranks_.miss(ready.message());
      ready.throw_if_error();
    }
    ranks_.barrier();
    try {
      const CurrentContext current(context_);
      settle(queue(nccl_, comm_, stream.handle()));
      if (!done_) done_ = stream.create_event();
      stream.record(*done_);
      wait_until([&] {
        ncclResult_t state = ncclSuccess;
        check(nccl_.ncclCommGetAsyncError(comm_, &state));
        check(state);
        return done_->complete();
      });
      done_->wait().throw_if_error();
      ranks_.barrier();
    } catch (const Error& error) {
      break_off(fmt::format("{}: {}", call, error.what()));
      throw;
    }
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", call, error.what()));
  }
}

}  // namespace sluice::cuda
