#include "tensor/sharded_variable.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/engine.h"
#include "streams/stream.h"

namespace sluice {
namespace {

// Copies rows of a part to or from their places in the whole.
void copy_rows(const TensorType& whole, const VariableShard& shard, std::byte* in_whole, std::byte* in_part,
               bool to_whole) {
  uint64_t outer = 1, inner = dtype_size(whole.dtype);
  for (int i = 0; i < whole.shape.rank(); ++i) {
    if (i < shard.axis) outer *= static_cast<uint64_t>(whole.shape[i]);
    if (i > shard.axis) inner *= static_cast<uint64_t>(whole.shape[i]);
  }
  const bool split = shard.axis >= 0;
  const uint64_t run = split ? static_cast<uint64_t>(shard.type.shape[shard.axis]) * inner : inner;
  const uint64_t pitch = split ? static_cast<uint64_t>(whole.shape[shard.axis]) * inner : inner;
  for (uint64_t row = 0; row < outer; ++row) {
    std::byte* place = in_whole + row * pitch + (split ? static_cast<uint64_t>(shard.start) * inner : 0);
    std::byte* piece = in_part + row * run;
    std::memcpy(to_whole ? place : piece, to_whole ? piece : place, run);
  }
}

}  // namespace

ShardedVariable::ShardedVariable(Engine& engine, Storage& whole, const TensorType& type, std::vector<Part> parts)
    : engine_(engine), life_(engine.life()), whole_(whole), type_(type), parts_(std::move(parts)) {}

std::shared_ptr<ShardedVariable> ShardedVariable::of(Engine& engine, const std::shared_ptr<Storage>& whole,
                                                     const TensorType& type,
                                                     const std::vector<VariableShard>& shards) {
  for (const auto& user : whole->kept()) {
    auto known = std::dynamic_pointer_cast<ShardedVariable>(user);
    const auto same = [](const Part& part, const VariableShard& shard) {
      return part.shard.device == shard.device && part.shard.axis == shard.axis && part.shard.start == shard.start;
    };
    if (known && std::equal(known->parts_.begin(), known->parts_.end(), shards.begin(), shards.end(), same))
      return known;
  }
  std::vector<Part> parts;
  for (const VariableShard& shard : shards) {
    const bool host = engine.device(shard.device).describe().host_memory;
    const plan::Space space = host ? plan::Space{} : plan::Space{plan::SpaceKind::kDevice, shard.device};
    const uint64_t bytes = checked_bytes(shard.type.shape, dtype_size(shard.type.dtype));
    parts.push_back({shard, std::make_shared<Storage>(engine.allocator(space), bytes, space)});
  }
  auto made = std::make_shared<ShardedVariable>(engine, *whole, type, std::move(parts));
  whole->keep(made);
  return made;
}

void ShardedVariable::copy_part(const Part& part, bool to_whole) {
  const uint64_t bytes = part.storage->bytes();
  const bool host = part.storage->space().kind != plan::SpaceKind::kDevice;
  auto* whole = static_cast<std::byte*>(whole_.data());
  std::vector<std::byte> staged(host ? 0 : bytes);
  std::byte* piece = host ? static_cast<std::byte*>(part.storage->data()) : staged.data();
  if (to_whole) {
    part.storage->before_read();
    if (!host) engine_.device(part.shard.device).copy_to_host(piece, part.storage->data(), bytes);
    copy_rows(type_, part.shard, whole, piece, true);
  } else {
    part.storage->before_write();
    copy_rows(type_, part.shard, whole, piece, false);
    if (!host) engine_.device(part.shard.device).copy_from_host(part.storage->data(), piece, bytes);
  }
}

void ShardedVariable::before_step(bool updates) {
  updates ? whole_.before_write(this) : whole_.before_read(this);
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
  SLUICE_CHECK_KIND(kRuntime, !life_.expired(),
                    "variable: its content lies on {}, whose engine has ended; end graphs ahead of their engine",
                    parts_[0].shard.device.str());
  for (const Part& part : parts_) {
    copy_part(part, true);
    if (part.shard.axis < 0) break;  // copies are equal
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
