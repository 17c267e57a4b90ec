#pragma once
// Files as memory: pages are read when they are touched, and all processes that map a file have one copy of them.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/files/file.h"

namespace sluice {

struct MappedRange;

// All of a file as it was when it was opened. It may be written to: that changes this process's copy of a page, and
// never the file. Replacing the file changes nothing here. Whoever changes its bytes changes what is read here.
//
// Whoever cuts the file off takes pages away. Touching one then raises SIGBUS, which would end the process; a handler,
// installed with the first mapping, puts zeros in the place of the missing pages and marks the mapping as lost. Signals
// that are about other memory go to the handler that was there before.
//
// Thread safety: every method.
class MappedFile {
 public:
  // REQUIRES: the file is not empty. Throws kIo "<path>: cannot be mapped: <why>".
  explicit MappedFile(const InputFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  // The file, as it was then, is the same: bytes at equal places are equal where nobody has written to them here.
  bool same_file(const MappedFile& other) const;
  // kIo once missing pages have been read, as zeros.
  Status check() const;

 private:
  struct Identity {
    uint64_t device = 0, inode = 0;
    int64_t seconds = 0, nanoseconds = 0;  // of the last change
    bool operator==(const Identity&) const = default;
  };
  std::string path_;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  Identity identity_;
  MappedRange* range_ = nullptr;
};

}  // namespace sluice
