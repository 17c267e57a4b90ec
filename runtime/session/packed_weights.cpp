#include "runtime/session/packed_weights.h"

#include "memory/core_lease.h"
#include "runtime/session/engine.h"

namespace sluice {

PackedWeight::PackedWeight(std::shared_ptr<Storage> source, std::shared_ptr<Storage> memory,
                           std::shared_ptr<const PreparedKernel> kernel, std::string what, Engine& engine, int cores)
    : source_(std::move(source)),
      memory_(std::move(memory)),
      kernel_(std::move(kernel)),
      what_(std::move(what)),
      engine_(engine),
      cores_(cores) {}

void PackedWeight::refresh() {
  if (current()) return;
  const MutexLock lock(mutex_);
  if (current()) return;
  // The version comes first: a write that it counts has been submitted and is waited for; a later one raises it.
  const uint64_t version = source_->version();
  source_->before_read();
  memory_->before_write();
  packed_.store(UINT64_MAX);  // until it is whole
  try {
    const uint64_t bytes = kernel_->workspace_bytes();
    std::unique_ptr<std::byte[]> room;
    void* workspace = nullptr;
    if (bytes > 0) {
      room = std::make_unique<std::byte[]>(bytes + plan::kAlignment);
      size_t space = bytes + plan::kAlignment;
      workspace = room.get();
      std::align(plan::kAlignment, bytes, workspace, space);
    }
    const void* from[] = {source_->data()};
    void* to[] = {memory_->data()};
    if (cores_ > 1) engine_.workers().look();
    const CoreLease lease(engine_.leases(), cores_);
    kernel_->run({.inputs = from, .outputs = to, .workspace = workspace});
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}  ({})", error.what(), what_));
  }
  packed_.store(version, std::memory_order_release);
}

std::shared_ptr<PackedWeight> PackedWeights::get(
    Engine& engine, const std::shared_ptr<Storage>& source, const Packing& packing,
    const std::function<std::shared_ptr<Storage>(uint64_t bytes)>& make_memory, const std::string& what, int cores) {
  std::shared_ptr<PackedWeight> copy;
  {
    const MutexLock lock(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<PackedWeight>& known = known_[{source.get(), packing.format}];
    copy = known.lock();
    if (copy == nullptr) {
      copy = std::make_shared<PackedWeight>(source, make_memory(align_up(packing.bytes, plan::kAlignment)),
                                            packing.kernel, what, engine, cores);
      known = copy;
    }
  }
  copy->refresh();
  return copy;
}

}  // namespace sluice
