#pragma once
// Kernels that meet other ranks, as far as a stream wants to know of it.

namespace sluice {

// Of a kernel that can say beforehand whether it will wait for another rank.
class Meeting {
 public:
  virtual ~Meeting() = default;
  // False: run(), called next, goes through at once. REQUIRES: no run() is under way.
  virtual bool waits() const = 0;
};

}  // namespace sluice
