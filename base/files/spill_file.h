#pragma once
// A file for what does not fit into memory. It has no name that outlives it: the disk is free again when it is closed,
// and when the process ends in whatever way.
//
// Thread safety: every method; two calls for the same bytes come one after the other.
#include <atomic>
#include <cstdint>
#include <string>

namespace sluice {

// SLUICE_SPILL_DIR, else TMPDIR, else /tmp.
std::string spill_folder();

class SpillFile {
 public:
  // Makes the file and reserves all its bytes, so that a disk without room for them is an error here and not in the
  // middle of a step. Throws kIo naming the file and the folder.
  SpillFile(const std::string& folder, uint64_t bytes);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // Both throw kIo naming the file, with the reason that the system gives.
  void write(uint64_t offset, const void* data, uint64_t bytes);
  void read(uint64_t offset, void* data, uint64_t bytes);
  uint64_t bytes_written() const { return written_.load(std::memory_order_relaxed); }
  uint64_t bytes_read() const { return read_.load(std::memory_order_relaxed); }

 private:
  std::string path_;
  const uint64_t bytes_;
  int descriptor_ = -1;
  std::atomic<uint64_t> written_{0}, read_{0};
};

}  // namespace sluice
