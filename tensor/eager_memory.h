#pragma once
// What the files of the eager executor share: fresh tensors, and what a value is to them.
#include <memory>
#include <utility>

#include "tensor/tensor.h"

namespace sluice {

// Uninitialised and contiguous, with storage and version in one allocation.
inline std::shared_ptr<EagerImpl> allocate_tensor(std::shared_ptr<Allocator> memory, const plan::Space& space,
                                                  const TensorType& type, const DeviceId& device) {
  struct Block {
    Block(std::shared_ptr<Allocator> memory, uint64_t bytes, const plan::Space& space)
        : storage(std::move(memory), bytes, space) {}
    Storage storage;
    uint64_t version = 0;
  };
  const auto block =
      std::make_shared<Block>(std::move(memory), checked_bytes(type.shape, dtype_size(type.dtype)), space);
  std::shared_ptr<Storage> storage(block, &block->storage);
  std::shared_ptr<uint64_t> version(block, &block->version);
  return std::make_shared<EagerImpl>(std::move(storage), TensorSpec::contiguous(type), device, std::move(version));
}

inline EagerImpl& eager_impl(const Value& value, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, !value.impl()->traced(),
                    "{}: a value of a graph was used outside it: {}; its content exists only when the graph runs",
                    where, value.type().str());
  return static_cast<EagerImpl&>(*value.impl());
}

}  // namespace sluice
