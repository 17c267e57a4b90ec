#include "runtime/session/packed_weights.h"

#include "memory/core_lease.h"
#include "runtime/session/engine.h"

namespace sluice {
namespace {

// Memory of a call, aligned as kernels want it; null for no bytes.
class Room {
 public:
  explicit Room(uint64_t bytes) {
    if (bytes == 0) return;
    size_t space = bytes + plan::kAlignment;
    memory_ = std::make_unique<std::byte[]>(space);
    data_ = memory_.get();
    std::align(plan::kAlignment, bytes, data_, space);
  }
  void* data() const { return data_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  void* data_ = nullptr;
};

void run(const PreparedKernel& kernel, const std::vector<const void*>& from, void* to) {
  const Room workspace(kernel.workspace_bytes());
  kernel.run({.inputs = from.data(), .outputs = &to, .workspace = workspace.data()});
}

}  // namespace

PackedWeight::PackedWeight(CopyRecipe recipe, std::shared_ptr<Storage> memory, std::string what, Engine& engine,
                           int cores)
    : recipe_(std::move(recipe)),
      memory_(std::move(memory)),
      what_(std::move(what)),
      engine_(engine),
      cores_(cores),
      made_of_(recipe_.sources.size()) {
  for (std::atomic<uint64_t>& version : made_of_) version = UINT64_MAX;
}

bool PackedWeight::current() const {
  for (size_t i = 0; i < made_of_.size(); ++i) {
    const Storage* const source = recipe_.sources[i].get();
    if (source == nullptr) continue;
    if (source->lent() || source->version() != made_of_[i].load(std::memory_order_acquire)) return false;
  }
  return true;
}

void PackedWeight::make() const {
  std::vector<const void*> from;
  for (const auto& source : recipe_.sources) from.push_back(source == nullptr ? nullptr : source->data());
  if (cores_ > 1) engine_.workers().look();
  const CoreLease lease(engine_.leases(), cores_);
  if (recipe_.order == nullptr) return run(*recipe_.derive, from, memory_->data());
  if (recipe_.derive == nullptr) return run(*recipe_.order, from, memory_->data());
  const Room derived(recipe_.derived_bytes);
  run(*recipe_.derive, from, derived.data());
  run(*recipe_.order, {derived.data()}, memory_->data());
}

void PackedWeight::refresh() {
  if (current()) return;
  const MutexLock lock(mutex_);
  if (current()) return;
  // The versions come first: a write that they count has been submitted and is waited for; a later one raises them.
  std::vector<uint64_t> versions;
  for (const auto& source : recipe_.sources) {
    versions.push_back(source == nullptr ? 0 : source->version());
    if (source != nullptr) source->before_read();
  }
  memory_->before_write();
  for (std::atomic<uint64_t>& version : made_of_) version = UINT64_MAX;  // until it is whole
  try {
    make();
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}  ({})", error.what(), what_));
  }
  for (size_t i = 0; i < versions.size(); ++i) made_of_[i].store(versions[i], std::memory_order_release);
}

std::shared_ptr<PackedWeight> PackedWeights::get(
    Engine& engine, const CopyRecipe& recipe,
    const std::function<std::shared_ptr<Storage>(uint64_t bytes)>& make_memory, const std::string& what, int cores) {
  std::vector<const Storage*> sources;
  for (const auto& source : recipe.sources) sources.push_back(source.get());
  std::shared_ptr<PackedWeight> copy;
  {
    const MutexLock lock(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<PackedWeight>& known = known_[{sources, recipe.words}];
    copy = known.lock();
    if (copy == nullptr) {
      copy = std::make_shared<PackedWeight>(recipe, make_memory(align_up(recipe.bytes, plan::kAlignment)), what, engine,
                                            cores);
      known = copy;
    }
  }
  copy->refresh();
  return copy;
}

}  // namespace sluice
