#include "runtime/bundle_files.h"

#include <boost/json.hpp>
#include <cstring>

#include "base/error.h"
#include "plan/json.h"

namespace sluice {

namespace fs = std::filesystem;
namespace json = boost::json;

void replace_directory(const std::string& directory, const std::function<void(const fs::path&)>& write) {
  const fs::path target = fs::path(directory).lexically_normal();
  const fs::path final_path = target.has_filename() ? target : target.parent_path();
  fs::path fresh = final_path, old = final_path;
  fresh += ".new";
  old += ".old";
  try {
    fs::remove_all(fresh);
    fs::create_directories(fresh);
    write(fresh);
    fs::remove_all(old);
    if (fs::exists(final_path)) fs::rename(final_path, old);
    fs::rename(fresh, final_path);
    fs::remove_all(old);
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::kIo, "bundle '{}': cannot be saved: {}", directory, error.what());
  }
}

void replace_file(const std::string& path, const std::function<void(std::ofstream&)>& write) {
  std::error_code linked;
  const fs::path existing = fs::canonical(path, linked), target = linked ? fs::path(path) : existing;
  fs::path fresh = target;
  fresh += ".new";
  try {
    std::ofstream file(fresh, std::ios::binary);
    write(file);
    file.close();
    SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written: {}", path, std::strerror(errno));
    std::error_code error;
    fs::rename(fresh, target, error);
    SLUICE_CHECK_KIND(kIo, !error, "{}: cannot be written: {}", path, error.message());
  } catch (...) {
    std::error_code ignored;
    fs::remove(fresh, ignored);
    throw;
  }
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written: {}", path.string(), std::strerror(errno));
}

std::string meta_text(const BundleMeta& meta) {
  json::object all;
  for (const auto& [key, value] : meta) all[key] = value;
  return json::serialize(all) + "\n";
}

void write_meta(const fs::path& path, const BundleMeta& meta) { write_text(path, meta_text(meta)); }

BundleMeta parse_meta(const std::string& text, const std::string& path) {
  json::error_code error;
  const json::value value = json::parse(text, error);
  SLUICE_CHECK(!error && value.is_object(), "{}: not a JSON object: {}", path,
               error ? error.message() : std::string("another value"));
  plan::refuse_repeated_keys(text, path);
  BundleMeta meta;
  for (const json::key_value_pair& pair : value.as_object()) {
    SLUICE_CHECK(pair.value().is_string(), "{}: '{}' is not text; every value must be a string", path,
                 std::string(pair.key()));
    meta.emplace(std::string(pair.key()), std::string(pair.value().as_string()));
  }
  return meta;
}

}  // namespace sluice
