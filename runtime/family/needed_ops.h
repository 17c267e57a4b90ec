#pragma once
// Which kernels a bundle needs.
#include <set>
#include <string>

#include "plan/plan.h"
#include "runtime/bundle/bundle_source.h"

namespace sluice {

// Those that its kernels call, and those in programs within attributes (of "fused", "loop").
std::set<std::string> needed_ops(const plan::Plan& plan);
// The ops of all plans of a bundle. Throws kIo, kValue.
std::set<std::string> needed_ops(const BundleSource& source);

}  // namespace sluice
