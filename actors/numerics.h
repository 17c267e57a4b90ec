#pragma once
// Looks for NaN and infinity in what a kernel has written.
#include <cstdint>
#include <string>

#include "plan/plan.h"

namespace sluice::actors {

class StreamExecutor;

// Throws kRuntime when a floating-point output holds a NaN or an infinity, naming the output, the first such element
// and the file in `directory` to which the whole output was written (raw, row-major). On `home`'s thread.
void check_numerics(const plan::Kernel& kernel, void* const* outputs, uint64_t step, StreamExecutor& home,
                    const std::string& directory);

}  // namespace sluice::actors
