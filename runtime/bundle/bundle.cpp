#include "runtime/bundle/bundle.h"

#include <boost/json.hpp>
#include <filesystem>

#include "plan/json/json.h"
#include "runtime/bundle/bundle_digest.h"
#include "runtime/bundle/bundle_files.h"
#include "runtime/bundle/bundle_source.h"
#include "runtime/bundle/replace_bundle.h"
#include "runtime/bundle/safetensors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

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
    for (const auto& [name, s] : shards.*of_kind) {
      json::object& shard = all[name].emplace_object();
      shard = {{"of", s.whole}, {"device", s.device.str()}};
      if (s.cuts.size() > 1) {
        json::array axes, starts;
        for (const plan::Shard::Cut& cut : s.cuts) {
          axes.emplace_back(cut.axis);
          starts.emplace_back(cut.start);
        }
        shard["axis"] = std::move(axes);
        shard["start"] = std::move(starts);
      } else {
        shard["axis"] = s.cuts.empty() ? -1 : s.cuts[0].axis;
        shard["start"] = s.cuts.empty() ? 0 : s.cuts[0].start;
      }
      if (!s.lies.empty()) shard["lies"] = s.lies;
    }
  });
  return json::serialize(text);
}

// The types of all that the plan calls an input, output or variable.
std::map<std::string, TensorType> types_in(const plan::Plan& plan, const std::string& kind) {
  std::map<std::string, TensorType> types;
  const auto add = [&](const std::string& name, const TensorSpec& spec) { types[name] = {spec.dtype, spec.shape}; };
  for (const plan::Input& i : plan.inputs) kind == "inputs" ? add(i.name, i.spec) : void();
  for (const plan::Output& o : plan.outputs) kind == "outputs" ? add(o.name, o.view.spec) : void();
  for (const plan::Variable& v : plan.variables) kind == "variables" ? add(v.name, v.spec) : void();
  return types;
}

// One axis and where the part begins, -1 for a copy of the whole; or a list of each. Nothing where they are bad.
std::optional<std::vector<plan::Shard::Cut>> cuts_of(const json::value& axis, const json::value& start, int64_t rank) {
  const auto listed = [](const json::value& value) { return value.is_array() ? value.as_array() : json::array{value}; };
  const json::array axes = listed(axis), starts = listed(start);
  if (axis.is_array() != start.is_array() || axes.size() != starts.size()) return std::nullopt;
  std::vector<plan::Shard::Cut> cuts;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!axes[i].is_int64() || !starts[i].is_int64()) return std::nullopt;
    const int64_t a = axes[i].as_int64(), s = starts[i].as_int64();
    const int64_t least = cuts.empty() ? axis.is_array() ? 0 : -1 : cuts.back().axis + 1;
    if (a < least || a >= rank || s < 0 || s >= int64_t{1} << 48) return std::nullopt;
    if (a >= 0) cuts.push_back({static_cast<int>(a), s});
  }
  return cuts;
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
      const json::value of = field("of"), device = field("device"), lies = field("lies");
      const int64_t rank = type->second.shape.rank();
      const std::optional<std::vector<plan::Shard::Cut>> cuts = cuts_of(field("axis"), field("start"), rank);
      SLUICE_CHECK(of.is_string() && device.is_string() && cuts && (lies.is_null() || lies.is_string()),
                   "{}: '{}': {}; must have of, device, axis (-1 to {}) and start", where, name,
                   json::serialize(pair.value()), rank - 1);
      (shards.*of_kind)[name] = {name,
                                 std::string(of.as_string()),
                                 device_of(std::string(device.as_string()), name),
                                 type->second,
                                 *cuts,
                                 lies.is_string() ? std::string(lies.as_string()) : std::string()};
    }
  });
  return shards;
}

}  // namespace

namespace {

BundleMeta whole_meta(const Bundle& bundle) {
  BundleMeta meta = bundle.meta;
  if (!bundle.shards.empty()) meta[kShardsKey] = shards_text(bundle.shards);
  return meta;
}

}  // namespace

BundleTexts bundle_texts(const Bundle& bundle) {
  return {{kPlanFile, plan::to_json(bundle.plan)},
          {kGraphFile, bundle.graph_text},
          {kMetaFile, meta_text(whole_meta(bundle))}};
}

void save_bundle(const std::string& directory, const Bundle& bundle) {
  replace_bundle(directory, [&](const fs::path& path) {
    const std::string weights = write_safetensors((path / kWeightsFile).string(), bundle.weights);
    BundleDigest digest;
    const std::string plan = plan::to_json(bundle.plan);
    for (const auto& [file, text] : {std::pair(kPlanFile, &plan), std::pair(kGraphFile, &bundle.graph_text)}) {
      digest.add(file, *text);
      write_text(path / file, *text);
    }
    BundleMeta meta = whole_meta(bundle);
    digest.seal(meta, weights);
    write_meta(path / kMetaFile, meta);
  });
}

namespace {

// `text`: of a file, asked for in this order; `path`: what errors call it; `check` looks at meta.json's pairs.
template <class Text, class Path, class Check>
Bundle parse_bundle(const Text& text, const Path& path, const Check& check) {
  Bundle bundle;
  bundle.plan = plan::from_json(text(kPlanFile), path(kPlanFile));
  bundle.graph_text = text(kGraphFile);
  bundle.meta = parse_meta(text(kMetaFile), path(kMetaFile));
  check(bundle.meta);
  if (const auto shards = bundle.meta.extract(kShardsKey))
    bundle.shards = parse_shards(path(kMetaFile), shards.mapped(), bundle.plan);
  return bundle;
}

}  // namespace

Bundle bundle_of(const BundleTexts& texts, const std::string& name) {
  const auto text = [&](const char* file) -> const std::string& {
    const auto found = texts.find(file);
    SLUICE_CHECK(found != texts.end(), "{}/{}: not there; a compiled graph has {}, {} and {}", name, file, kPlanFile,
                 kGraphFile, kMetaFile);
    return found->second;
  };
  return parse_bundle(
      text, [&](const char* file) { return name + "/" + file; }, [](BundleMeta&) {});
}

Bundle load_bundle(const std::string& directory) { return load_bundle(BundleSource(directory), make_host_allocator()); }

Bundle load_bundle(const BundleSource& source, const std::shared_ptr<Allocator>& allocator, const Weights& given) {
  BundleDigest digest;
  std::string of_weights;
  Bundle bundle = parse_bundle(
      [&](const std::string& file) {
        std::string text = file == kGraphFile ? source.utf8_text(file) : source.text(file);
        if (file != kMetaFile) digest.add(file, text);
        return text;
      },
      [&](const char* file) { return source.path(file); },
      [&](BundleMeta& meta) { of_weights = digest.open(source, meta); });
  bundle.weights = load_weights(source, allocator, given, of_weights, {&bundle.plan, 1}, bundle.shards.variables);
  return bundle;
}

Weights load_weights(const BundleSource& source, const std::shared_ptr<Allocator>& allocator, const Weights& given,
                     const std::string& digest, std::span<const plan::Plan> plans, const plan::ShardsByName& shards) {
  Weights weights;
  if (given.empty() || source.has(kWeightsFile)) {
    BundleMeta said;
    weights = source.weights(kWeightsFile, allocator, &said);
    check_weights_digest(source.path(kWeightsFile), digest, said[kDigestKey]);
  }
  for (const auto& [name, weight] : given) {
    bool known = weights.contains(name);
    for (const plan::Plan& plan : plans)
      for (const plan::Variable& variable : plan.variables) {
        const plan::Shard* shard = plan::find_shard(shards, variable.name);
        known |= (shard != nullptr ? shard->whole : variable.name) == name;
      }
    SLUICE_CHECK(known, "bundle '{}': weight '{}' is given; no variable of the plan has this name", source.name(),
                 name);
    weights[name] = weight;
  }
  return weights;
}

}  // namespace sluice
