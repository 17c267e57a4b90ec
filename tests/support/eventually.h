#pragma once
// Waits for what nobody announces, such as what /proc tells.
#include <chrono>
#include <thread>

namespace sluice::test {

// Whether `condition` comes to hold within two minutes. It is looked at again and again, and other threads have their
// turn between two looks. Where somebody announces a change, a test waits for that instead.
template <class Condition>
bool eventually(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace sluice::test
