#pragma once
// Versions of what graphs write, while other threads trace. A trace counts its own writes in the version of a variable
// and takes them back when it is over; steps that other threads submit meanwhile count once it is.
//
// Thread safety: all.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sluice {

using VersionCounter = std::shared_ptr<uint64_t>;

// The counters that a trace writes, each its own until the end.
class BorrowedVersions {
 public:
  BorrowedVersions() = default;
  ~BorrowedVersions() { give_back(); }
  BorrowedVersions(const BorrowedVersions&) = delete;
  BorrowedVersions& operator=(const BorrowedVersions&) = delete;

  void borrow(const VersionCounter& counter);
  void give_back();

 private:
  std::vector<VersionCounter> counters_;
};

// A step that writes these was submitted.
void count_step(std::span<const VersionCounter> written);

}  // namespace sluice
