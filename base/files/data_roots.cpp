#include "base/files/data_roots.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

constexpr const char* kDataRoots = "data_roots";

// "/" alone becomes "", to which a name is added with its own "/".
std::string without_slashes(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

DataRoots::DataRoots(const std::map<std::string, std::string>& roots) {
  for (const auto& [from, to] : roots) {
    SLUICE_CHECK(!to.empty(), "data_roots: '{}' is to be found in ''; must be a folder, \".\" for the current one",
                 from);
    const bool all = from.starts_with('/') && without_slashes(from).empty();
    roots_.emplace_back(all ? "/" : without_slashes(from), without_slashes(to));
  }
  std::stable_sort(roots_.begin(), roots_.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

DataRoots::DataRoots(const NamedAttrs& attrs) {
  const auto found =
      std::find_if(attrs.begin(), attrs.end(), [](const auto& attr) { return attr.first == kDataRoots; });
  if (found == attrs.end()) return;
  const auto& texts = get_attr<Strings>(attrs, kDataRoots);
  SLUICE_CHECK(texts.size() % 2 == 0, "{}: {} texts; must be pairs", kDataRoots, texts.size());
  for (size_t i = 0; i < texts.size(); i += 2) roots_.emplace_back(texts[i], texts[i + 1]);
}

void DataRoots::put_into(NamedAttrs& attrs) const {
  Strings texts;
  for (const auto& [from, to] : roots_) texts.insert(texts.end(), {from, to});
  std::erase_if(attrs, [](const auto& attr) { return attr.first == kDataRoots; });
  attrs.emplace_back(kDataRoots, std::move(texts));
}

std::string DataRoots::moved(std::string_view name) const {
  if (name.empty()) return {};  // of a file that is not there
  for (const auto& [from, to] : roots_) {
    if (from.empty() && !name.starts_with('/')) return to + "/" + std::string(name);
    if (from == "/" && name.starts_with('/')) return to + std::string(name);
    if (from.empty() || !name.starts_with(from)) continue;
    const std::string_view rest = name.substr(from.size());
    if (rest.empty() || rest.starts_with('/')) return to + std::string(rest);
  }
  return std::string(name);
}

}  // namespace sluice
