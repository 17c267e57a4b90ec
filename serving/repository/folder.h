#pragma once
// A folder that is open, and through which nothing outside of it can be reached: links, "..", and what they lead to are
// refused by the system itself while a name is looked up, so nothing can be exchanged between a check and its use.
// If the operator wants it, links are followed, as far as they stay beneath the folder that open() was given.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice::serving {

// Cheap to copy; the folder stays open as long as a copy lives, also when it is renamed or removed.
class Folder {
 public:
  enum class Links { kRefused, kFollowedBeneath };
  // A path of the operator's, in which links are followed; `links` is about what lies beneath it. Throws kNotFound
  // naming the path as `what`.
  static Folder open(const std::string& path, const std::string& what, Links links = Links::kRefused);
  // A folder of 0700 that is removed with all its content when the last copy goes.
  static Folder make_private();

  enum class Kind { kFile, kFolder, kOther };
  struct Entry {
    std::string name;
    Kind kind = Kind::kOther;
  };
  std::vector<Entry> list() const;  // by name
  // Nothing where there is none. Throws kInvalidArgument for links that are refused, or lead out.
  std::optional<Folder> find(const std::string& name) const;
  // The content of a file; nothing where there is none. Throws kInvalidArgument for links, for what is no regular file,
  // and for more than `most` bytes.
  std::optional<std::string> read(const std::string& name, size_t most) const;
  // Makes folders as needed. Throws kUnavailable when the disk is full.
  void write(const std::string& name, const std::string& content) const;

  // The fingerprint of everything below: it changes when a file does, by its name, size, time or identity. Throws
  // kInvalidArgument, with the name, for links, for files that have another name too, and for what is neither file nor
  // folder. `skip` tells of a name directly in the folder whether it is left out.
  std::string fingerprint(const std::function<bool(const std::string&)>& skip = {}) const;
  // The path by which this process can open it, as long as a copy lives.
  std::string path() const;

  struct Handle;  // of folder.cpp

 private:
  explicit Folder(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<const Handle> handle_;
};

}  // namespace sluice::serving
