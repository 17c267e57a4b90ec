#include "runtime/family/family_bundle.h"

#include <cstring>
#include <filesystem>

#include "plan/json/json.h"
#include "runtime/bundle/bundle_digest.h"
#include "runtime/bundle/bundle_files.h"
#include "runtime/bundle/replace_bundle.h"
#include "runtime/bundle/safetensors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string prefix_of(size_t member) { return fmt::format("{}/{}/", kMembersFolder, member); }

// Calls `add` with every text, and `next` after that of a member's plan.
template <class Add, class Next>
FamilyPlans read_plans(const BundleSource& source, const Add& add, const Next& next) {
  const auto text = [&](const std::string& file) {
    std::string read = source.text(file);
    add(file, read);
    return read;
  };
  FamilyPlans plans;
  plans.family = plan::parse_family(text(kFamilyFile), source.path(kFamilyFile));
  for (size_t m = 0; m < plans.family.members.size(); ++m) {
    const std::string file = prefix_of(m) + kPlanFile;
    source.check_folders(file);
    plans.members.push_back(plan::from_json(text(file), source.path(file)));
    next(m);
  }
  return plans;
}

bool equal(const BundleTensor& a, const BundleTensor& b) {
  if (!(a.spec == b.spec)) return false;
  return a.storage == b.storage || std::memcmp(a.storage->data(), b.storage->data(), a.spec.extent_bytes()) == 0;
}

}  // namespace

std::string member_directory(const std::string& directory, size_t member) {
  return fmt::format("{}/{}/{}", directory, kMembersFolder, member);
}

std::vector<plan::NamedType> named_inputs(const plan::Plan& plan) {
  std::vector<plan::NamedType> types;
  for (const plan::Input& in : plan.inputs) types.push_back({in.name, {in.spec.dtype, in.spec.shape}});
  return types;
}

bool is_family_bundle(const BundleSource& source) { return source.has(kFamilyFile); }

void save_family_bundle(const std::string& directory, const FamilyBundle& bundle) {
  plan::check_family(bundle.family);
  std::map<std::string, BundleTensor> weights;
  for (size_t m = 0; m < bundle.members.size(); ++m) {
    SLUICE_CHECK_KIND(kUnsupported, bundle.members[m].shards.empty(),
                      "family '{}': its plans run on several devices; bundles of such graphs have one plan each",
                      bundle.family.name);
    for (const auto& [name, weight] : bundle.members[m].weights) {
      const auto [known, fresh] = weights.try_emplace(name, weight);
      if (!fresh && !equal(known->second, weight)) weights[prefix_of(m) + name] = weight;
    }
  }
  replace_bundle(directory, [&](const fs::path& path) {
    BundleDigest digest;
    const auto write = [&](const std::string& file, const std::string& text) {
      digest.add(file, text);
      write_text(path / file, text);
    };
    write(kFamilyFile, plan::family_json(bundle.family));
    for (size_t m = 0; m < bundle.members.size(); ++m) {
      fs::create_directories(path / prefix_of(m));
      write(prefix_of(m) + kPlanFile, plan::to_json(bundle.members[m].plan));
      write(prefix_of(m) + kGraphFile, bundle.members[m].graph_text);
    }
    BundleMeta meta = bundle.meta;
    digest.seal(meta, write_safetensors((path / kWeightsFile).string(), weights));
    write_meta(path / kMetaFile, meta);
  });
}

FamilyPlans load_family_plans(const BundleSource& source) {
  return read_plans(
      source, [](const std::string&, const std::string&) {}, [](size_t) {});
}

FamilyBundle load_family_bundle(const BundleSource& source, const std::shared_ptr<Allocator>& allocator,
                                const Weights& given) {
  BundleDigest digest;
  std::vector<std::string> graphs;
  const auto add = [&](const std::string& file, const std::string& text) { digest.add(file, text); };
  FamilyPlans plans = read_plans(source, add, [&](size_t m) {
    const std::string file = prefix_of(m) + kGraphFile;
    add(file, graphs.emplace_back(source.utf8_text(file)));
  });
  FamilyBundle bundle{std::move(plans.family), {}, parse_meta(source.text(kMetaFile), source.path(kMetaFile))};
  const Weights weights = load_weights(source, allocator, given, digest.open(source, bundle.meta), plans.members);
  for (size_t m = 0; m < plans.members.size(); ++m) {
    Bundle member;
    member.plan = std::move(plans.members[m]);
    member.graph_text = std::move(graphs[m]);
    for (const auto& [name, weight] : weights)
      if (!name.starts_with(std::string(kMembersFolder) + "/")) member.weights[name] = weight;
    const std::string prefix = prefix_of(m);
    for (auto it = weights.lower_bound(prefix); it != weights.end() && it->first.starts_with(prefix); ++it)
      member.weights[it->first.substr(prefix.size())] = it->second;
    bundle.members.push_back(std::move(member));
  }
  return bundle;
}

}  // namespace sluice
