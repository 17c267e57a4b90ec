#include "plan/shard.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::plan {

std::string Shard::str() const {
  if (cuts.empty()) return fmt::format("'{}', a copy of '{}'", name, whole);
  std::string text = fmt::format("'{}'", name);
  for (const Cut& cut : cuts)
    text += fmt::format(", [{}, {}) of dimension {}", cut.start, cut.start + type.shape[cut.axis], cut.axis);
  return text + fmt::format(" of '{}'", whole);
}

int64_t Shard::start(int axis) const {
  for (const Cut& cut : cuts)
    if (cut.axis == axis) return cut.start;
  return 0;
}

const Shard* find_shard(const ShardsByName& shards, const std::string& name) {
  const auto found = shards.find(name);
  return found == shards.end() ? nullptr : &found->second;
}

Window window_of(const Shard& shard, const TensorSpec& whole) {
  Window window{0, {whole.dtype, shard.type.shape, whole.strides}};
  bool fits = whole.dtype == shard.type.dtype && whole.shape.rank() == shard.type.shape.rank();
  for (int i = 0; fits && i < whole.shape.rank(); ++i) {
    const bool cut =
        std::any_of(shard.cuts.begin(), shard.cuts.end(), [&](const Shard::Cut& c) { return c.axis == i; });
    const int64_t start = shard.start(i), rest = whole.shape[i] - shard.type.shape[i];
    fits = cut ? start >= 0 && start <= rest : rest == 0;
    if (start > 0 && fits) window.offset += static_cast<uint64_t>(start * whole.strides[i]) * dtype_size(whole.dtype);
  }
  SLUICE_CHECK(fits, "shard {}: it is {}, of {}; it must lie within", shard.str(), shard.type.str(),
               TensorType{whole.dtype, whole.shape}.str());
  return window;
}

}  // namespace sluice::plan
