#pragma once
// The parts of the machine, and how fast it moves bytes.
#include <string>

namespace sluice::info {

// Cores, caches, instruction sets and nodes of memory, and what was measured just now, in a second: gigabytes per
// second of memcpy, of memory that two processes share, and of TCP within the machine.
std::string measure(bool json);

}  // namespace sluice::info
