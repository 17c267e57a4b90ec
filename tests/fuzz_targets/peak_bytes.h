#pragma once
// How much the heap grew at most while something ran. Linking peak_bytes.cpp replaces operator new, which everything
// that reads goes through.
#include <cstdint>
#include <functional>

namespace sluice::test {

// Bytes from operator new that were live at once, above those live before, while `work` ran on this thread alone.
uint64_t peak_bytes(const std::function<void()>& work);

}  // namespace sluice::test
