#include "runtime/bundle/bundle_files.h"

#include <boost/json.hpp>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "plan/json/json.h"

namespace sluice {

namespace fs = std::filesystem;
namespace json = boost::json;

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
