#pragma once
// Kernels that meet other ranks, as far as a stream wants to know of it.

namespace sluice {

// A kernel that meets other ranks can say beforehand whether it will wait for another one. REQUIRES of all: no run() is
// under way.
class Meeting {
 public:
  virtual ~Meeting() = default;
  // False: run(), called next, goes through at once.
  virtual bool waits() const = 0;
  // A kernel that receives is told where the first run() to come that was not granted yet will write. False when there
  // are enough, or this is none that receives.
  virtual bool grant(void* /*output*/) const noexcept { return false; }
  virtual bool receives() const { return false; }
  virtual int granted() const { return 0; }  // run()s to come
  // There will be no run() any more: what was granted is not written to.
  virtual void take_back() const noexcept {}
};

}  // namespace sluice
