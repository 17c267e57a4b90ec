#pragma once
// The folders of a plan's files, where they are others on this machine than on the one that made the plan.
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/attr.h"

namespace sluice {

// Folders that take the place of others at the beginning of names. Immutable.
class DataRoots {
 public:
  DataRoots() = default;
  // A folder as names have it, and the folder that is there instead. "" stands for the folder of names that are
  // relative. Throws kValue for a new folder without a name.
  explicit DataRoots(const std::map<std::string, std::string>& roots);
  // Reads what put_into() wrote; there are none where it did not.
  explicit DataRoots(const NamedAttrs& attrs);

  bool empty() const { return roots_.empty(); }
  // Tells a kernel that opens files, by its attributes.
  void put_into(NamedAttrs& attrs) const;
  // The name by which a file is found: of several folders that it begins with, the longest counts.
  std::string moved(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> roots_;  // the longest first
};

}  // namespace sluice
