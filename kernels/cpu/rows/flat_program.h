#pragma once
// A body of elementwise ops on operands without gaps: each is as large as the result, or one element.
#include <vector>

#include "base/tensor_spec.h"
#include "kernels/cpu/rows/fused_program.h"

namespace sluice::cpu {

// Immutable once made. Thread safety: make() may be called from several threads at once, each with its own space.
class FlatProgram {
 public:
  static constexpr size_t kMostNumbers = 4;  // operands that are one element
  static constexpr int64_t kScratch = 32768;

  // `is_number`: of each input, whether it is one element. Throws Error(kUnsupported) where it does not fit its space.
  FlatProgram(const char* op, const AttrGraph& body, const std::vector<DType>& inputs, std::vector<bool> is_number);

  // The memory that one thread works in.
  struct Space {
    alignas(64) char scratch[kScratch];
    alignas(64) char repeated[kMostNumbers][kTile * sizeof(double)];
    const void* inputs[kMostFusedInputs];
  };
  // REQUIRES: before make(), with the operands' memory.
  void begin(const void* const* inputs, Space& space) const;
  // Elements [at, at + n) of the result, as memory has them. REQUIRES: n <= kTile.
  void make(Space& space, int64_t at, int64_t n, void* to) const;
  int64_t result_size() const { return result_size_; }

 private:
  FusedProgram program_;
  std::vector<bool> is_number_;
  std::vector<int64_t> sizes_;  // of the inputs' elements
  int64_t result_size_ = 0;
};

}  // namespace sluice::cpu
