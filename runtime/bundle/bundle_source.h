#pragma once
// The files of a bundle, which are in a directory, or in a tar archive, on disk or in memory.
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/files/file.h"
#include "base/tensor_spec.h"
#include "memory/storage.h"

namespace sluice {

class BundleFolder;
class MappedFile;

// A variable's content in host memory.
struct BundleTensor {
  TensorSpec spec;  // contiguous
  std::shared_ptr<Storage> storage;
};
using Weights = std::map<std::string, BundleTensor>;  // by the graph's name of the variable

// It reads the files that a path led to when this was made, also while others save to it.
//
// Thread safety: every method.
class BundleSource {
 public:
  // Throws kIo where `path` is neither a directory nor a file, kValue for a file that is no archive.
  BundleSource(const std::string& path);  // NOLINT: a path is a source
  // An archive in memory, which errors call `name`. Weights stay in it where they can: it is kept as long as they are
  // used, and nobody may write to it meanwhile. Throws kValue.
  BundleSource(std::shared_ptr<const void> archive, uint64_t bytes, std::string name);

  // The path, or the name.
  const std::string& name() const { return name_; }
  // "<name>/<file>", for errors.
  std::string path(const std::string& file) const;
  bool has(const std::string& file) const;
  // Throws kIo unless every folder on the way to `file` is one of the bundle's own: a directory, and no link.
  void check_folders(const std::string& file) const;
  // These take files that lie in the bundle itself, and are no links. Throw kIo.
  InputFile open(const std::string& file) const;
  std::string text(const std::string& file) const;
  // Returns a text that is UTF-8; throws kValue for others.
  std::string utf8_text(const std::string& file) const;
  // Returns the weights of a safetensors file, as they lie there where they can; others in memory of `allocator`.
  // Throws kIo, kValue. `metadata`: what the file says of itself, filled in.
  Weights weights(const std::string& file, const std::shared_ptr<Allocator>& allocator,
                  std::map<std::string, std::string>* metadata = nullptr) const;
  // The bundle in a folder of this one, as sluice.save writes a list of graphs. Its files are those that were there
  // when this was made. REQUIRES: has(folder).
  BundleSource inner(const std::string& folder) const;
  // Tells whether a path leads to a file that looks like an archive. Throws kIo.
  static bool is_archive(const std::string& path);

 private:
  void read(std::span<const std::byte> archive);

  std::string name_, prefix_;  // of the files' names, where it is within another
  std::shared_ptr<const BundleFolder> folder_;
  bool archived_ = false;
  std::shared_ptr<const MappedFile> mapped_;  // of an archive on disk
  std::shared_ptr<const void> memory_;        // of one in memory
  const std::byte* begin_ = nullptr;          // of either
  std::map<std::string, std::span<const std::byte>> files_;
};

}  // namespace sluice
