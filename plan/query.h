#pragma once
// The questions that a device is asked about the kernels of a plan.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/key.h"
#include "plan/plan.h"
#include "plan/target.h"

namespace sluice::plan {

// Per kernel: the stream that runs it, or -1.
std::vector<int> streams_of_kernels(const Plan& plan);

// REQUIRES: `stream` of the plan runs it.
KernelQuery query_of(const Plan& plan, const Kernel& kernel, const Stream& stream);

// Equal keys: kernels prepared by one definition are the same. Costs are left out of the key.
Key key_of(const KernelQuery& query);

// An attribute that a call may have beside its op's; `missing` where it has none such.
template <class T>
T beside(const NamedAttrs& attrs, const char* name, T missing) {
  const auto at = std::find_if(attrs.begin(), attrs.end(), [&](const auto& attr) { return attr.first == name; });
  return at == attrs.end() ? missing : std::get<T>(at->second);
}
// One of these: the most bytes of workspace that its kernel may have. Kernels that have another way to compute take it
// then.
inline constexpr const char* kWorkspaceLimit = "workspace_limit";
// Another one: by which of its implementations a kernel computes. One that it does not have here is the usual one.
inline constexpr const char* kImplementation = "implementation";
inline constexpr const char* kGenerated = "generated";  // code that is made for the query
// The attribute of float32 products that says how exactly they are computed ("highest" where it is missing;
// CompileOptions::float32_matmul_precision).
inline constexpr const char* kPrecision = "precision";
// And another: false where the kernel's results may differ from run to run in their last bits, if that is faster.
inline constexpr const char* kDeterministic = "deterministic";
// An option of plans: their kernels of the host take denormal numbers for zero.
inline constexpr const char* kFlushDenormals = "flush_denormals";
uint64_t workspace_limit(const NamedAttrs& attrs);  // UINT64_MAX: none

}  // namespace sluice::plan
