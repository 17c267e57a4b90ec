#pragma once
// Reading that all kinds of bundles share: texts, which are read strictly.
#include <filesystem>
#include <map>
#include <string>

namespace sluice {

using BundleMeta = std::map<std::string, std::string>;

// Throws kIo.
void write_text(const std::filesystem::path& path, const std::string& text);

std::string meta_text(const BundleMeta& meta);
void write_meta(const std::filesystem::path& path, const BundleMeta& meta);
// Parses the text of a meta.json, which errors call `path`.
BundleMeta parse_meta(const std::string& text, const std::string& path);

}  // namespace sluice
