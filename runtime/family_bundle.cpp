#include "runtime/family_bundle.h"

#include <cstring>
#include <filesystem>

#include "plan/json.h"
#include "runtime/bundle_files.h"
#include "runtime/safetensors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string prefix_of(size_t member) { return fmt::format("{}/{}/", kMembersFolder, member); }

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
  replace_directory(directory, [&](const fs::path& path) {
    for (size_t m = 0; m < bundle.members.size(); ++m) {
      const fs::path folder = member_directory(path.string(), m);
      fs::create_directories(folder);
      write_text(folder / kPlanFile, plan::to_json(bundle.members[m].plan));
      write_text(folder / kGraphFile, bundle.members[m].graph_text);
    }
    write_safetensors((path / kWeightsFile).string(), weights);
    write_meta(path / kMetaFile, bundle.meta);
    write_text(path / kFamilyFile, plan::family_json(bundle.family));
  });
}

FamilyPlans load_family_plans(const BundleSource& source) {
  FamilyPlans plans;
  plans.family = plan::parse_family(source.text(kFamilyFile), source.path(kFamilyFile));
  for (size_t m = 0; m < plans.family.members.size(); ++m) {
    const std::string file = prefix_of(m) + kPlanFile;
    source.check_folders(file);
    plans.members.push_back(plan::from_json(source.text(file), source.path(file)));
  }
  return plans;
}

FamilyBundle load_family_bundle(const BundleSource& source, const std::shared_ptr<Allocator>& allocator,
                                const Weights& given) {
  FamilyPlans plans = load_family_plans(source);
  FamilyBundle bundle{std::move(plans.family), {}, parse_meta(source.text(kMetaFile), source.path(kMetaFile))};
  const Weights weights = load_weights(source, allocator, given, plans.members);
  for (size_t m = 0; m < plans.members.size(); ++m) {
    Bundle member;
    member.plan = std::move(plans.members[m]);
    member.graph_text = source.utf8_text(prefix_of(m) + kGraphFile);
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
