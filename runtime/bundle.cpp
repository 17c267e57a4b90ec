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

constexpr const char* kShardsKey = "shards";  // of meta.json

template <class F>
void each_kind(F&& f) {
  f("inputs", &plan::Shards::inputs);
  f("outputs", &plan::Shards::outputs);
  f("variables", &plan::Shards::variables);
}

std::string shards_text(const plan::Shards& shards) {
  json::object text;
  each_kind([&](const char* kind, plan::ShardsByName plan::Shards::*of_kind) {
    json::object& all = text[kind].emplace_object();
    for (const auto& [name, s] : shards.*of_kind)
      all[name] = json::object{{"of", s.whole}, {"device", s.device.str()}, {"axis", s.axis}, {"start", s.start}};
  });
  return json::serialize(text);
}

// What the plan calls an input, output or variable.
std::map<std::string, TensorType> types_in(const plan::Plan& plan, const std::string& kind) {
  std::map<std::string, TensorType> types;
  const auto add = [&](const std::string& name, const TensorSpec& spec) { types[name] = {spec.dtype, spec.shape}; };
  for (const plan::Input& i : plan.inputs) kind == "inputs" ? add(i.name, i.spec) : void();
  for (const plan::Output& o : plan.outputs) kind == "outputs" ? add(o.name, o.view.spec) : void();
  for (const plan::Variable& v : plan.variables) kind == "variables" ? add(v.name, v.spec) : void();
  return types;
}

plan::Shards parse_shards(const std::string& path, const std::string& text, const plan::Plan& plan) {
  const std::string where = path + ": shards";
  json::error_code error;
  const json::value value = json::parse(text, error);
  SLUICE_CHECK(!error && value.is_object() && value.as_object().size() == 3,
               "{}: not an object of inputs, outputs and variables", where);
  plan::refuse_repeated_keys(text, where);
  plan::Shards shards;
  const auto device_of = [&](const std::string& text, const std::string& name) {
    try {
      return parse_device(text);
    } catch (const Error& error) {
      fail(error.kind(), "{}: '{}': {}", where, name, error.what());
    }
  };
  each_kind([&](const char* kind, plan::ShardsByName plan::Shards::*of_kind) {
    const json::value* all = value.as_object().if_contains(kind);
    SLUICE_CHECK(all != nullptr && all->is_object(), "{}: no object '{}'; there must be one", where, kind);
    const std::map<std::string, TensorType> types = types_in(plan, kind);
    for (const json::key_value_pair& pair : all->as_object()) {
      const std::string name(pair.key());
      const auto type = types.find(name);
      SLUICE_CHECK(type != types.end(), "{}: '{}' is none of the {} of the plan; all must be", where, name, kind);
      const auto field = [&](const char* key) {
        const json::value* found = pair.value().is_object() ? pair.value().as_object().if_contains(key) : nullptr;
        return found != nullptr ? *found : json::value();
      };
      const json::value of = field("of"), device = field("device"), axis = field("axis"), start = field("start");
      const int64_t rank = type->second.shape.rank();
      SLUICE_CHECK(of.is_string() && device.is_string() && axis.is_int64() && start.is_int64() &&
                       axis.as_int64() >= -1 && axis.as_int64() < rank && start.as_int64() >= 0 &&
                       start.as_int64() < int64_t{1} << 48,
                   "{}: '{}': {}; must have of, device, axis (-1 to {}) and start", where, name,
                   json::serialize(pair.value()), rank - 1);
      (shards.*of_kind)[name] = {
          name,         std::string(of.as_string()),       device_of(std::string(device.as_string()), name),
          type->second, static_cast<int>(axis.as_int64()), start.as_int64()};
    }
  });
  return shards;
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
    write_text(fresh / kPlanFile, plan::to_json(bundle.plan));
    write_text(fresh / kGraphFile, bundle.graph_text);
    write_safetensors((fresh / kWeightsFile).string(), bundle.weights);
    json::object meta;
    for (const auto& [key, value] : bundle.meta) meta[key] = value;
    if (!bundle.shards.empty()) meta[kShardsKey] = shards_text(bundle.shards);
    write_text(fresh / kMetaFile, json::serialize(meta) + "\n");
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
  const std::string plan_path = (path / kPlanFile).string();
  // Only files that lie in the directory itself: a bundle from elsewhere may not name files of this machine.
  const auto text = [&](const char* name) { return read_file((path / name).string(), Links::kRefuse); };
  bundle.plan = plan::from_json(text(kPlanFile), plan_path);
  bundle.graph_text = text(kGraphFile);
  if (const size_t end = utf8_length(bundle.graph_text); end < bundle.graph_text.size())
    fail(ErrorKind::kValue, "{}: byte {} is no UTF-8; a graph is text", (path / kGraphFile).string(), end);
  const std::string meta_path = (path / kMetaFile).string();
  bundle.meta = parse_meta(meta_path, text(kMetaFile));
  if (const auto shards = bundle.meta.extract(kShardsKey))
    bundle.shards = parse_shards(meta_path, shards.mapped(), bundle.plan);
  bundle.weights = read_safetensors((path / kWeightsFile).string(), allocator, Links::kRefuse);
  return bundle;
}

}  // namespace sluice
