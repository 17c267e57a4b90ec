#include "runtime/bundle.h"

#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "plan/json.h"
#include "runtime/safetensors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written: {}", path.string(), std::strerror(errno));
}

std::map<std::string, std::string> parse_meta(const std::string& path, const std::string& text) {
  json::error_code error;
  const json::value value = json::parse(text, error);
  SLUICE_CHECK(!error && value.is_object(), "{}: not a JSON object: {}", path,
               error ? error.message() : std::string("another value"));
  plan::refuse_repeated_keys(text, path);
  std::map<std::string, std::string> meta;
  for (const json::key_value_pair& pair : value.as_object()) {
    SLUICE_CHECK(pair.value().is_string(), "{}: '{}' is not text; every value must be a string", path,
                 std::string(pair.key()));
    meta.emplace(std::string(pair.key()), std::string(pair.value().as_string()));
  }
  return meta;
}

}  // namespace

void save_bundle(const std::string& directory, const Bundle& bundle) {
  const fs::path target = fs::path(directory).lexically_normal();
  fs::path fresh = target, old = target;
  if (!fresh.has_filename()) {
    fresh = fresh.parent_path();
    old = fresh;
  }
  const fs::path final_path = fresh;
  fresh += ".new";
  old += ".old";
  try {
    fs::remove_all(fresh);
    fs::create_directories(fresh);
    write_text(fresh / "plan.json", plan::to_json(bundle.plan));
    write_text(fresh / "graph.txt", bundle.graph_text);
    write_safetensors((fresh / "weights.safetensors").string(), bundle.weights);
    json::object meta;
    for (const auto& [key, value] : bundle.meta) meta[key] = value;
    write_text(fresh / "meta.json", json::serialize(meta) + "\n");
    fs::remove_all(old);
    if (fs::exists(final_path)) fs::rename(final_path, old);
    fs::rename(fresh, final_path);
    fs::remove_all(old);
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::kIo, "bundle '{}': cannot be saved: {}", directory, error.what());
  }
}

Bundle load_bundle(const std::string& directory) { return load_bundle(directory, make_host_allocator()); }

Bundle load_bundle(const std::string& directory, const std::shared_ptr<Allocator>& allocator) {
  const fs::path path(directory);
  SLUICE_CHECK_KIND(
      kIo, fs::is_directory(path),
      "bundle '{}': not a directory; a bundle holds plan.json, graph.txt, weights.safetensors and meta.json",
      directory);
  Bundle bundle;
  const std::string plan_path = (path / "plan.json").string();
  // Only files that lie in the directory itself: a bundle from elsewhere may not name files of this machine.
  const auto text = [&](const char* name) { return read_file((path / name).string(), Links::kRefuse); };
  bundle.plan = plan::from_json(text("plan.json"), plan_path);
  bundle.graph_text = text("graph.txt");
  bundle.meta = parse_meta((path / "meta.json").string(), text("meta.json"));
  bundle.weights = read_safetensors((path / "weights.safetensors").string(), allocator, Links::kRefuse);
  return bundle;
}

}  // namespace sluice
