#include "tensor/session/sharded_variable.h"

#include <algorithm>
#include <utility>

#include "runtime/session/engine.h"
#include "runtime/session/strided_copy.h"
#include "streams/stream.h"
#include "tensor/eager.h"

namespace sluice {
namespace {

// Copies a part to or from its place in the whole.
void copy_rows(const TensorType& whole, const plan::Shard& shard, std::byte* in_whole, std::byte* in_part,
               bool to_whole) {
  const TensorSpec part = TensorSpec::contiguous(shard.type);
  const plan::Window window = plan::window_of(shard, TensorSpec::contiguous(whole));
  std::byte* place = in_whole + window.offset;
  if (to_whole)
    strided_copy(place, window.spec, in_part, part);
  else
    strided_copy(in_part, part, place, window.spec);
}

}  // namespace

ShardedVariable::ShardedVariable(std::shared_ptr<Storage> whole, const TensorType& type, std::vector<Part> parts)
    : whole_(std::move(whole)), type_(type), parts_(std::move(parts)) {}

std::shared_ptr<ShardedVariable> ShardedVariable::of(EagerExecutor& eager, EagerImpl& tensor,
                                                     const std::vector<plan::Shard>& shards) {
  const auto same = [](const Part& part, const plan::Shard& shard) {
    return part.shard.device == shard.device && part.shard.cuts == shard.cuts;
  };
  std::erase_if(tensor.sharded, [](const auto& known) { return known.expired(); });
  for (const auto& weak : tensor.sharded) {
    if (const auto known = weak.lock();
        std::equal(known->parts_.begin(), known->parts_.end(), shards.begin(), shards.end(), same))
      return known;
  }
  std::vector<Part> parts;
  for (const plan::Shard& shard : shards) {
    Device& device = eager.engine().device(shard.device);
    parts.push_back({shard, nullptr, &device});
    const plan::Space home{plan::SpaceKind::kDevice, shard.device};
    const plan::Space space = device.describe().host_memory ? plan::Space{} : home;
    const uint64_t bytes = checked_bytes(shard.type.shape, dtype_size(shard.type.dtype));
    parts.back().storage = std::make_shared<Storage>(eager.engine().allocator(space), bytes, space);
  }
  const TensorSpec& spec = tensor.memory_spec();
  auto made = std::make_shared<ShardedVariable>(tensor.storage(), TensorType{spec.dtype, spec.shape}, std::move(parts));
  tensor.storage()->attach(made, true);
  tensor.sharded.push_back(made);
  return made;
}

void ShardedVariable::copy_part(const Part& part, bool to_whole) {
  const uint64_t bytes = part.storage->bytes();
  const bool host = part.storage->space().kind != plan::SpaceKind::kDevice;
  auto* whole = static_cast<std::byte*>(whole_->data());
  std::vector<std::byte> staged(host ? 0 : bytes);
  std::byte* piece = host ? static_cast<std::byte*>(part.storage->data()) : staged.data();
  if (to_whole) {
    part.storage->before_read();
    if (!host) part.device->copy_to_host(piece, part.storage->data(), bytes);
    copy_rows(type_, part.shard, whole, piece, true);
  } else {
    part.storage->before_write();
    copy_rows(type_, part.shard, whole, piece, false);
    if (!host) part.device->copy_from_host(part.storage->data(), piece, bytes);
  }
}

void ShardedVariable::before_step(bool updates) {
  updates ? whole_->before_write(this) : whole_->before_read(this);
  const std::lock_guard lock(mutex_);
  if (!ahead_) return;
  for (const Part& part : parts_) copy_part(part, false);
  ahead_ = false;
}

void ShardedVariable::step_submitted() {
  const std::lock_guard lock(mutex_);
  stale_ = true;
}

void ShardedVariable::gather() {
  const std::lock_guard lock(mutex_);
  if (!stale_) return;
  for (const Part& part : parts_) {
    copy_part(part, true);
    if (part.shard.cuts.empty()) break;  // copies are equal
  }
  stale_ = false;
}

void ShardedVariable::wait_idle(bool writes_only) {
  gather();
  if (writes_only) return;
  const std::lock_guard lock(mutex_);
  ahead_ = true;
}

}  // namespace sluice
