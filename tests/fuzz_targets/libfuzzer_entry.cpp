// The door libFuzzer knocks at; the build says which target is behind it.
#include "fuzz_targets/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::fuzz::SLUICE_FUZZ_TARGET(data, size);
}
