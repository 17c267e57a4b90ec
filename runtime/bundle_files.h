#pragma once
// What kinds of bundles share: their directory is replaced as a whole, and their texts are read strictly.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

namespace sluice {

using BundleMeta = std::map<std::string, std::string>;

// Fills a new directory with `write` and puts it into the place of `directory`. Throws kIo.
void replace_directory(const std::string& directory, const std::function<void(const std::filesystem::path&)>& write);
// Fills a new file with `write` and puts it into the place of `path`, or of what that links to: whoever has the old one
// open or mapped keeps it as it was. Throws kIo, and then the old one is still there.
void replace_file(const std::string& path, const std::function<void(std::ofstream&)>& write);
// Throws kIo.
void write_text(const std::filesystem::path& path, const std::string& text);

std::string meta_text(const BundleMeta& meta);
void write_meta(const std::filesystem::path& path, const BundleMeta& meta);
// Of the text of a meta.json, which errors call `path`.
BundleMeta parse_meta(const std::string& text, const std::string& path);

}  // namespace sluice
