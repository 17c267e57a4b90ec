#pragma once
// `fused_rows` by code that is made for the query (row_source.h).
#include <memory>

#include "kernels/cpu/generated/row_source.h"
#include "kernels/kernel.h"

namespace sluice::generated {

// The query's source where plan::kImplementation asks for one, else "" (KernelDef::source).
std::string text_of(const plan::KernelQuery& query);

// `usual` computes the same, and is what comes back where there is no such text, or no compiler here, which is logged.
std::unique_ptr<PreparedKernel> prepare_rows(const plan::KernelQuery& query, int threads,
                                             std::unique_ptr<PreparedKernel> usual);

}  // namespace sluice::generated
