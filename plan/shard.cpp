#include "plan/shard.h"

#include "base/error.h"

namespace sluice::plan {

std::string Shard::str() const {
  if (axis < 0) return fmt::format("'{}', a copy of '{}'", name, whole);
  return fmt::format("'{}', [{}, {}) of dimension {} of '{}'", name, start, start + type.shape[axis], axis, whole);
}

const Shard* find_shard(const ShardsByName& shards, const std::string& name) {
  const auto found = shards.find(name);
  return found == shards.end() ? nullptr : &found->second;
}

Window window_of(const Shard& shard, const TensorSpec& whole) {
  Window window{0, {whole.dtype, shard.type.shape, whole.strides}};
  bool fits = whole.dtype == shard.type.dtype && whole.shape.rank() == shard.type.shape.rank();
  for (int i = 0; fits && i < whole.shape.rank(); ++i) {
    const int64_t start = i == shard.axis ? shard.start : 0, rest = whole.shape[i] - shard.type.shape[i];
    fits = i == shard.axis ? start >= 0 && start <= rest : rest == 0;
    if (start > 0 && fits) window.offset = static_cast<uint64_t>(start * whole.strides[i]) * dtype_size(whole.dtype);
  }
  SLUICE_CHECK(fits, "shard {}: it is {}, of {}; it must lie within", shard.str(), shard.type.str(),
               TensorType{whole.dtype, whole.shape}.str());
  return window;
}

}  // namespace sluice::plan
