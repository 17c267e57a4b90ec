#pragma once
// Including this header makes cuda a device of the test program, on the fake driver (tests/cuda/fake_driver), where the
// build has a CUDA backend. Variables that are set in the environment stay.
#include <cstdlib>

namespace sluice::test {

#ifdef FAKE_CUDA_BACKEND
inline const bool kFakeCuda = [] {
  setenv("SLUICE_CUDA_LIBRARY", FAKE_CUDA_BACKEND, 0);
  setenv("SLUICE_CUDA_DRIVER", FAKE_CUDA_DRIVER, 0);
  return true;
}();
#endif

}  // namespace sluice::test
