#pragma once
// Destruction of long chains of nodes and values without recursion.
#include <memory>
#include <vector>

namespace sluice {

// Destroys `items` now, or, when called from a destructor that a bury() runs, when that one comes to them.
void bury(std::vector<std::shared_ptr<void>> items);

}  // namespace sluice
