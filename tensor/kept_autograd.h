#pragma once
// Autograd data of tensors that outlive a trace.
#include <memory>
#include <vector>

#include "graph/value.h"
#include "tensor/versions.h"

namespace sluice {

// Thread safety: none; one thread traces.
// Invariant: a tensor that is kept has no gradient of its own while it is traced, and is as it was once restore() has
// been called; its version counts what the trace writes until then.
class KeptAutograd {
 public:
  void keep(const Value& value);
  // Gives tensors their gradients and versions back. Idempotent.
  void restore();

 private:
  struct Kept {
    std::shared_ptr<ValueImpl> impl;
    std::shared_ptr<ValueImpl> grad;
    std::shared_ptr<GradNode> grad_fn;
    int output_index;
    bool requires_grad;
  };
  std::vector<Kept> kept_;
  BorrowedVersions versions_;
};

}  // namespace sluice
