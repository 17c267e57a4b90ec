#pragma once
// What every generated source begins with.

namespace sluice::cuda {

// Types, loads and stores of every dtype through the type that is computed in, and how a kernel tells of a failure. It
// needs no header of CUDA's, and compiles as C++ where __device__ and its kin are defined (tests/cuda/cpu_shim.h).
extern const char* const kPrelude;

}  // namespace sluice::cuda
