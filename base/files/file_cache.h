#pragma once
// A folder of files that took long to make, for later processes: each under the hash of its key. When a new file does
// not fit, the files go first that were used longest ago. Files are replaced as a whole, so that several processes may
// read and write at once.
//
// Whoever could write into the folder could have a process run what they like: folder and files must belong to the
// user, and nobody else may write to them. A file is read only where it is, byte for byte, what was put.
//
// Thread safety: every method.
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sluice {

// The folder of caches of a `kind`: in SLUICE_CACHE_DIR, else XDG_CACHE_HOME/sluice, else ~/.cache/sluice; "" when
// there is none.
std::string cache_directory(const char* kind);

// False where SLUICE_CACHE is "off".
bool caches_are_on();

class FileCache {
 public:
  struct Stats {
    uint64_t hits = 0, misses = 0;     // found and good; not
    uint64_t stored = 0, evicted = 0;  // by this process
    uint64_t rejected = 0;             // misses, since the file was not what had been put
    uint64_t entries = 0, bytes = 0;   // that the folder has now
  };

  // Makes the folder when something is put.
  FileCache(std::string directory, uint64_t most_bytes);

  const std::string& directory() const { return directory_; }
  uint64_t most_bytes() const { return most_bytes_.load(std::memory_order_relaxed); }
  void set_most_bytes(uint64_t bytes);  // and lets go of what is too much
  // Returns the result of `use` for the content under a key; none where there is no such content. A file for which
  // `use` throws Error is removed with a warning that says why.
  template <class Use>
  auto find(const std::string& key, Use&& use) -> std::optional<decltype(use(std::string_view()))> {
    const std::string name = name_of(key);
    try {
      if (const std::optional<std::string> content = read(name)) {
        auto made = use(std::string_view(*content));
        ++hits_;
        return made;
      }
    } catch (const Error& error) {
      reject(name, error.what());
    }
    ++misses_;
    return std::nullopt;
  }
  // A content that cannot be written is not there later; a warning says so, once.
  void put(const std::string& key, std::string_view content);
  // Removes everything.
  void clear();
  Stats stats() const;

 private:
  int folder_to_read();  // a descriptor; -1 where there is none to be trusted
  void warn(const Error& error);
  static std::string name_of(const std::string& key);
  std::optional<std::string> read(const std::string& name);
  void reject(const std::string& name, const char* why);
  void evict(uint64_t most_bytes);

  const std::string directory_;
  std::atomic<uint64_t> most_bytes_;
  std::atomic<uint64_t> hits_{0}, misses_{0}, stored_{0}, evicted_{0}, rejected_{0};
  std::atomic<bool> warned_{false};
};

}  // namespace sluice
