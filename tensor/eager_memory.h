#pragma once
// Helpers that the files of the eager executor share: fresh tensors, and the kinds of values that there are for them.
#include <memory>
#include <utility>

#include "tensor/tensor.h"

namespace sluice {

// Uninitialised and contiguous, with storage and version in one allocation. `space`: nothing for the host's.
template <class... Space>
std::shared_ptr<EagerImpl> allocate_tensor(const std::shared_ptr<Allocator>& memory, const TensorType& type,
                                           const DeviceId& device, const Space&... space) {
  struct Block {
    Block(const std::shared_ptr<Allocator>& memory, uint64_t bytes, const Space&... space)
        : storage(memory, bytes, space...) {}
    Storage storage;
    uint64_t version = 0;
  };
  auto block = std::make_shared<Block>(memory, checked_bytes(type.shape, dtype_size(type.dtype)), space...);
  uint64_t* const counter = &block->version;
  std::shared_ptr<Storage> storage(block, &block->storage);
  std::shared_ptr<uint64_t> version(std::move(block), counter);
  return std::make_shared<EagerImpl>(std::move(storage), TensorSpec::contiguous(type), device, std::move(version));
}

// Memory that is asked for by no op, or by a call that has another name than its op: the error says whose it is.
template <class Make>
auto asked_by(const char* what, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMemory) throw;
    fail(ErrorKind::kMemory, "{}: {}", what, error.what());
  }
}

// REQUIRES: not of a graph.
inline EagerImpl& eager_impl(const Value& value) { return static_cast<EagerImpl&>(*value.impl()); }
inline EagerImpl& eager_impl(const Value& value, const char* where) {
  SLUICE_CHECK_KIND(kRuntime, !value.impl()->traced(),
                    "{}: a value of a graph was used outside it: {}; its content exists only when the graph runs",
                    where, value.type().str());
  return eager_impl(value);
}

}  // namespace sluice
