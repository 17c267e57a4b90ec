#pragma once
// Products whose rows are no multiple of 16 bytes apart, on cuBLASLt. Tensor cores take what is loaded 16 bytes at
// once; for other rows, as of a vocabulary of 50,257 words, the library's algorithms are several times slower. So such
// a matrix is copied to rows that are, a part of it at a time.
#include <memory>
#include <optional>

#include "kernels/kernel.h"

namespace sluice::cuda {

// When it is worth two launches more.
struct PaddingRules {
  double flops = 8e9;                           // of a product, at least
  double flops_per_byte = 512;                  // of what is copied, at least
  uint64_t copied_bytes = uint64_t{256} << 20;  // at a time, at most
};

// The product of a part of the rows as the library computes it, of the largest part; none where nothing is gained.
std::optional<plan::KernelQuery> padded_part(const plan::KernelQuery& query, const PaddingRules& rules = {});

// The kernel; null where nothing is gained, or a part of it cannot be the library's.
std::unique_ptr<PreparedKernel> padded_product(const plan::KernelQuery& query, const PaddingRules& rules = {});

}  // namespace sluice::cuda
