#pragma once
// The files of a bundle's folder, all open, so that another which takes its place changes nothing here.
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/files/file.h"

namespace sluice {

// Thread safety: every method.
class BundleFolder {
 public:
  // Opens all files that a bundle may have, beneath one folder: they are of one bundle even while others save to the
  // same path. A file that cannot be opened is an error once it is asked for. Texts of folders in it are read at once.
  // Throws kIo where `path` is no folder.
  explicit BundleFolder(const std::string& path);

  // There is something of this name, of whatever kind. `name` may lead through folders: "members/0/plan.json".
  bool has(const std::string& name) const;
  bool has_folder(const std::string& name) const { return folders_.contains(name); }
  // Errors call it `path`. Throws kIo.
  InputFile open(const std::string& name, const std::string& path) const;

 private:
  class Entry;
  void open_all(int folder, const std::string& path, const std::string& prefix);

  std::map<std::string, std::shared_ptr<const Entry>> entries_;
  std::set<std::string> folders_;
};

}  // namespace sluice
