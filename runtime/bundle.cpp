#include "runtime/bundle.h"

#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "plan/json.h"
#include "runtime/engine.h"
#include "runtime/safetensors.h"
#include "runtime/strided_copy.h"
#include "streams/stream.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  SLUICE_CHECK_KIND(kIo, file, "{}: cannot be read: {}", path.string(), std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

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
  std::map<std::string, std::string> meta;
  for (const json::key_value_pair& pair : value.as_object()) {
    SLUICE_CHECK(pair.value().is_string(), "{}: '{}' is not text; every value must be a string", path,
                 std::string(pair.key()));
    meta.emplace(std::string(pair.key()), std::string(pair.value().as_string()));
  }
  return meta;
}

// What load_bundle() read for this engine serves as it is, when the plan keeps it contiguous on the host.
bool serves(const BundleTensor& tensor, const plan::Variable& variable, const plan::Space& space, uint64_t bytes) {
  return space.kind == plan::SpaceKind::kHost && tensor.spec.strides == variable.spec.strides &&
         tensor.storage->bytes() >= bytes;
}

VariableBindings bind_each(Engine& engine, const plan::Plan& plan, const std::map<std::string, BundleTensor>& weights,
                           bool given_up) {
  VariableBindings bindings;
  for (const plan::Variable& variable : plan.variables) {
    const TensorType type{variable.spec.dtype, variable.spec.shape};
    const auto it = weights.find(variable.name);
    SLUICE_CHECK(it != weights.end(), "bundle: plan '{}' needs variable '{}' ({}); the weights have none of that name",
                 plan.name, variable.name, type.str());
    const BundleTensor& tensor = it->second;
    SLUICE_CHECK(tensor.spec.dtype == type.dtype && tensor.spec.shape == type.shape,
                 "bundle: variable '{}' is {} in the weights; the plan needs {}", variable.name,
                 TensorType{tensor.spec.dtype, tensor.spec.shape}.str(), type.str());
    const plan::Space& space = plan.spaces[variable.space];
    const uint64_t bytes = align_up(variable.spec.extent_bytes(), plan::kAlignment);
    if (given_up && serves(tensor, variable, space, bytes)) {
      bindings[variable.name] = tensor.storage;
      continue;
    }
    const auto storage = std::make_shared<Storage>(engine.allocator(space), bytes, space);
    if (space.kind != plan::SpaceKind::kDevice) {
      strided_copy(storage->data(), variable.spec, tensor.storage->data(), tensor.spec);
    } else {
      std::vector<std::byte> staged(bytes);
      strided_copy(staged.data(), variable.spec, tensor.storage->data(), tensor.spec);
      engine.device(space.device).copy_from_host(storage->data(), staged.data(), bytes);
    }
    bindings[variable.name] = storage;
  }
  return bindings;
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
  bundle.plan = plan::from_json(read_text(plan_path), plan_path);
  bundle.graph_text = read_text(path / "graph.txt");
  bundle.meta = parse_meta((path / "meta.json").string(), read_text(path / "meta.json"));
  bundle.weights = read_safetensors((path / "weights.safetensors").string(), allocator);
  return bundle;
}

VariableBindings bind_weights(Engine& engine, const plan::Plan& plan,
                              const std::map<std::string, BundleTensor>& weights) {
  return bind_each(engine, plan, weights, false);
}

VariableBindings bind_weights(Engine& engine, const plan::Plan& plan, std::map<std::string, BundleTensor>&& weights) {
  return bind_each(engine, plan, weights, true);
}

Session load_session(Engine& engine, const std::string& directory, SessionOptions options) {
  // Straight into the engine's memory, so that weights are never held twice.
  Bundle bundle = load_bundle(directory, engine.allocator({}));
  const VariableBindings bindings = bind_weights(engine, bundle.plan, std::move(bundle.weights));
  bundle.weights.clear();
  return Session::load(engine, std::move(bundle.plan), bindings, std::move(options));
}

}  // namespace sluice
