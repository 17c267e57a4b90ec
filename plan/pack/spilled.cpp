#include "plan/pack/spilled.h"

#include <algorithm>
#include <variant>

#include "base/error.h"

namespace sluice::plan {
namespace {

template <class T>
const T& disk_attr(const Kernel& kernel, const char* name) {
  for (const auto& [key, value] : kernel.attrs)
    if (const T* found = key == name ? std::get_if<T>(&value) : nullptr; found != nullptr) return *found;
  fail(ErrorKind::kValue, "kernel '{}': {}: absent, or of another type; {} must have one", kernel.name, name,
       kernel.op);
}

}  // namespace

DiskPlace disk_place(const Kernel& kernel) {
  constexpr int64_t kMostBytes = int64_t{1} << 48;
  const bool one = kernel.inputs.size() == 1 && kernel.outputs.size() == 1;
  const View* const place = !one ? nullptr : moves_to_disk(kernel) ? &kernel.outputs[0] : &kernel.inputs[0];
  SLUICE_CHECK(one && place->spec == TensorSpec::contiguous({DType::kInt64, {1}}),
               "kernel '{}': {} must have a value and its place, int64(1,)", kernel.name, kernel.op);
  const int64_t offset = disk_attr<int64_t>(kernel, "offset");
  const uint64_t bytes = (moves_to_disk(kernel) ? kernel.inputs[0] : kernel.outputs[0]).spec.extent_bytes();
  SLUICE_CHECK(offset >= 0 && offset <= kMostBytes && bytes <= static_cast<uint64_t>(kMostBytes),
               "kernel '{}': {} bytes at {} of a file; must lie in its first {} bytes", kernel.name, bytes, offset,
               kMostBytes);
  return {disk_attr<std::string>(kernel, "function"), static_cast<uint64_t>(offset), bytes};
}

Spilled spilled(const Plan& plan) {
  Spilled all;
  for (const Kernel& kernel : plan.kernels) {
    if (!moves_to_disk(kernel) && !moves_from_disk(kernel)) continue;
    const DiskPlace place = disk_place(kernel);
    all.file_bytes = std::max(all.file_bytes, place.offset + place.bytes);
    if (!moves_to_disk(kernel)) continue;
    ++all.values;
    all.bytes += place.bytes;
  }
  return all;
}

}  // namespace sluice::plan
