#include "actors/observer.h"

#include <algorithm>

#include "actors/stream_executor.h"
#include "streams/stream.h"

namespace sluice::actors {

void observe(const KernelObservers& observers, const plan::Kernel& kernel, int index, void* const* outputs,
             uint64_t step, StreamExecutor& home) {
  const bool late = home.stream().asynchronous();
  if (late) home.stream().synchronize().throw_if_error();
  if (std::none_of(observers.begin(), observers.end(), [&](const auto& o) { return o->wants(kernel, step); })) return;
  std::vector<std::byte> copy;
  for (size_t o = 0; o < kernel.outputs.size(); ++o) {
    if (outputs[o] == nullptr) continue;
    const auto* data = static_cast<const std::byte*>(outputs[o]);
    if (late && home.stream().kind() != plan::StreamKind::kCopyOut) {
      copy.resize(kernel.outputs[o].spec.extent_bytes());
      home.device().copy_to_host(copy.data(), data, copy.size());
      data = copy.data();
    }
    for (const auto& observer : observers)
      if (observer->wants(kernel, step)) observer->wrote(kernel, index, static_cast<int>(o), step, data);
  }
}

}  // namespace sluice::actors
