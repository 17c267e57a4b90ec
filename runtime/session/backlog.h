#pragma once
// Copies of the inputs of steps that have been submitted while the plan had no free slots for them.
//
// Thread safety: calls for different steps from any threads at once; of one step, one after the other.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/storage.h"
#include "runtime/session/ports.h"
#include "runtime/session/session.h"

namespace sluice {

class Backlog {
 public:
  // Room for `steps` at a time, all of it allocated now.
  Backlog(size_t steps, const Ports& ports, const std::shared_ptr<Allocator>& memory);
  size_t capacity() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }
  // REQUIRES: fewer than capacity() steps lie between this one and any other that is held.
  void put(uint64_t step, std::span<const InputTensor> inputs);
  // The inputs that put() got, contiguous; until the next step takes its place.
  std::span<const InputTensor> inputs(uint64_t step) const { return entries_[step % capacity()]; }

 private:
  std::vector<std::vector<InputTensor>> entries_;
  std::vector<std::shared_ptr<Storage>> storages_;
  uint64_t bytes_ = 0;
};

}  // namespace sluice
