#pragma once
// Sources compiled for a GPU by NVRTC, kept on disk.
//
// An entry of the cache is a file named by a hash of the source, the architecture and NVRTC's version. It holds those
// and its own checksum, and is used only when all agree: whatever else lies there is ignored and replaced. It is
// written beside its place and renamed, so a reader never sees half of one.
#include <memory>
#include <mutex>
#include <string>

namespace sluice::cuda {

struct Program {
  std::string entry;
  std::string image;  // what cuModuleLoadData takes
};

class ProgramCache {
 public:
  // `directory` is made when it is first written to; "" keeps nothing.
  explicit ProgramCache(std::string directory) : directory_(std::move(directory)) {}
  // The source as a program for `arch` ("sm_90"); `contract`: products and sums may be joined. Throws kUnsupported when
  // NVRTC is not to be had, kRuntime with its log when it refuses the source. A directory that cannot be written costs
  // time, not the program.
  std::shared_ptr<const Program> get(const std::string& entry, const std::string& source, const std::string& arch,
                                     bool contract = true);

  struct Stats {
    int compiled = 0, loaded = 0, ignored = 0;  // from source; from disk; entries on disk that were not right
  };
  Stats stats() const;

 private:
  std::string read(const std::string& path, const std::string& key);
  void write(const std::string& path, const std::string& key, const std::string& image);

  const std::string directory_;
  mutable std::mutex mutex_;
  Stats stats_;
};

// The cache of this process: SLUICE_CACHE_DIR, else XDG_CACHE_HOME/sluice, else ~/.cache/sluice.
ProgramCache& program_cache();

}  // namespace sluice::cuda
