#include "runtime/session/backlog.h"

#include "runtime/session/strided_copy.h"

namespace sluice {

Backlog::Backlog(size_t steps, const Ports& ports, const std::shared_ptr<Allocator>& memory) : entries_(steps) {
  for (std::vector<InputTensor>& entry : entries_) {
    for (const Ports::Input& port : ports.inputs) {
      const TensorType& type = port.info.type;
      if (port.info.copied.empty()) {  // PortMemory keeps it
        entry.emplace_back();
        continue;
      }
      const uint64_t bytes = checked_bytes(type.shape, dtype_size(type.dtype));
      storages_.push_back(std::make_shared<Storage>(memory, bytes));
      entry.push_back({storages_.back()->data(), TensorSpec::contiguous(type)});
      bytes_ += bytes;
    }
  }
}

void Backlog::put(uint64_t step, std::span<const InputTensor> inputs) {
  std::vector<InputTensor>& entry = entries_[step % capacity()];
  for (size_t i = 0; i < inputs.size(); ++i)
    if (entry[i].data != nullptr)
      strided_copy(const_cast<void*>(entry[i].data), entry[i].spec, inputs[i].data, inputs[i].spec);
}

}  // namespace sluice
