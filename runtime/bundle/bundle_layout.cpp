#include "runtime/bundle/bundle_layout.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "runtime/bundle/scratch.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNumberedFolder = "0";  // stands for every number

struct BundleLayout {
  std::vector<const char*> needed, optional;
  const char* folder = nullptr;                // of which it may have those of this name
  std::vector<const BundleLayout*> in_folder;  // one of which each of those must be
};

bool is_whole_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

std::span<const BundleLayout* const> bundle_layouts() {
  static const BundleLayout plan = {{kPlanFile, kGraphFile, kMetaFile}, {kWeightsFile}, nullptr, {}};
  static const BundleLayout member = {{kPlanFile, kGraphFile}, {}, nullptr, {}};
  static const BundleLayout members = {{}, {}, kNumberedFolder, {&member}};
  static const BundleLayout family = {{kFamilyFile, kMetaFile}, {kWeightsFile}, kMembersFolder, {&members}};
  static const BundleLayout shapes = {{kShapesFile}, {}, kNumberedFolder, {&family, &plan}};
  static const BundleLayout* const all[] = {&family, &shapes, &plan};
  return all;
}

bool among_names(const std::vector<const char*>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "" or what is wrong, of a folder that must be one of `kinds`.
std::string wrong_in_bundle(const fs::path& folder, const std::string& shown,
                            std::span<const BundleLayout* const> kinds) {
  std::vector<std::pair<std::string, fs::file_type>> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); !is_scratch(name))
      entries.emplace_back(name, entry.symlink_status().type());
  std::sort(entries.begin(), entries.end());
  const auto has = [&](const char* name) {
    return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
  };
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const BundleLayout* layout) {
    return std::all_of(layout->needed.begin(), layout->needed.end(), has);
  });
  if (kind == kinds.end())
    return entries.empty() ? fmt::format("has an empty folder '{}'", shown)
                           : fmt::format("has '{}{}' and is no whole bundle", shown, entries.front().first);
  for (const auto& [name, type] : entries) {
    const bool file = among_names((*kind)->needed, name) || among_names((*kind)->optional, name);
    if (file && type == fs::file_type::regular) continue;
    const char* const inner = (*kind)->folder;
    const bool inside = inner != nullptr && (inner == kNumberedFolder ? is_whole_number(name) : name == inner);
    if (!inside || type != fs::file_type::directory)
      return fmt::format("has '{}{}', which is no part of a bundle", shown, name);
    if (std::string wrong = wrong_in_bundle(folder / name, shown + name + "/", (*kind)->in_folder); !wrong.empty())
      return wrong;
  }
  return {};
}

}  // namespace

bool is_bundle_file(const std::string& name) {
  const char* const all[] = {kPlanFile, kGraphFile, kMetaFile, kWeightsFile, kFamilyFile, kShapesFile};
  return std::find(std::begin(all), std::end(all), name) != std::end(all);
}

bool is_bundle_folder(const std::string& name) { return name == kMembersFolder || is_whole_number(name); }

std::string why_no_bundle(const fs::path& folder) {
  return fs::is_empty(folder) ? std::string() : wrong_in_bundle(folder, "", bundle_layouts());
}

void remove_bundle(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const fs::file_type type = entry.symlink_status(ignored).type();
    if (type == fs::file_type::directory && (is_bundle_folder(name) || is_scratch(name)))
      remove_bundle(entry.path());
    else if (type == fs::file_type::regular && (is_bundle_file(name) || is_scratch(name)))
      fs::remove(entry.path(), ignored);
  }
  fs::remove(folder, ignored);  // succeeds where nothing is left in it
}

}  // namespace sluice
