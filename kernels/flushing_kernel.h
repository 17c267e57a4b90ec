#pragma once
// Kernels of the host that compute with denormal numbers as zero, on each of their threads (ADR 43).
#include <memory>

#include "kernels/kernel.h"

namespace sluice::cpu {

// `kernel`, whose run() flushes denormals and leaves the calling thread's mode as it was. One that needs no cores is
// given back: it computes nothing, or what a program wrote.
std::shared_ptr<const PreparedKernel> flushing(std::shared_ptr<const PreparedKernel> kernel);

}  // namespace sluice::cpu
