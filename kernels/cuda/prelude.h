#pragma once
// The text that every generated source begins with.

namespace sluice::cuda {

// Types, loads and stores of every dtype through the type that is computed in, and how a kernel tells of a failure. It
// needs no header of CUDA's, and compiles as C++ where __device__ and its kin are defined (tests/cuda/cpu_shim.h).
extern const char* const kPrelude;

// Threads that work together, kTeam of them, kStride apart within a block of kThreads. over_team() joins, by a function
// join(A, A), what its members have, in an order that their numbers fix; each gets the total.
extern const char* const kTeamFunctions;

// The maximum of numbers and the sum of the exponentials of what they are below it, in one pass over them (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018). In front of it stands C; join() is over_team()'s.
extern const char* const kRunningFunctions;

}  // namespace sluice::cuda
