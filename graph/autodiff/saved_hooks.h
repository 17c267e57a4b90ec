#pragma once
// The form in which a tape keeps values for a backward pass may be chosen: torch.autograd.graph.saved_tensors_hooks.
#include <functional>
#include <memory>

#include "graph/value.h"

namespace sluice {

// Stands for a saved value. unpack() gives a value of its type, whenever a backward pass reads it.
class PackedValue {
 public:
  virtual ~PackedValue() = default;
  virtual Value unpack() = 0;
};

// While one lives, `pack` gets every value that calls of this thread save, without its history and with gradients
// disabled, and what it returns is kept instead. The innermost scope counts; one with no `pack` lets values be kept as
// they are.
class SavedHooksScope {
 public:
  using Pack = std::function<std::shared_ptr<PackedValue>(const Value&)>;
  explicit SavedHooksScope(Pack pack);
  ~SavedHooksScope();
  SavedHooksScope(const SavedHooksScope&) = delete;
  SavedHooksScope& operator=(const SavedHooksScope&) = delete;

  static const Pack* innermost();  // of this thread; null where values are kept as they are
 private:
  const Pack pack_;
  SavedHooksScope* const outer_;
};

}  // namespace sluice
