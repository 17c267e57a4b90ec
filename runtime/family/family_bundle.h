#pragma once
// A bundle of a plan family: family.json, weights.safetensors and meta.json of all, and members/<n>/ with plan.json and
// graph.txt. A weight that one member has otherwise than the others is called "members/<n>/<name>".
#include <string>
#include <vector>

#include "plan/family/family.h"
#include "runtime/bundle/bundle.h"
#include "runtime/bundle/bundle_source.h"

namespace sluice {

struct FamilyBundle {
  plan::Family family;
  std::vector<Bundle> members;  // of each, its plan, graph and weights; equal weights share their storage once loaded
  std::map<std::string, std::string> meta;
};

// "<directory>/members/<n>", where what is wrong with a member is looked for.
std::string member_directory(const std::string& directory, size_t member);
bool is_family_bundle(const BundleSource& source);

// A plan's inputs, as families know them.
std::vector<plan::NamedType> named_inputs(const plan::Plan& plan);

struct FamilyPlans {
  plan::Family family;
  std::vector<plan::Plan> members;
};
// Loads the plans of a bundle, without what it takes to run them. Throws kIo, kValue.
FamilyPlans load_family_plans(const BundleSource& source);

// The same as save_bundle() and load_bundle(). Throws kUnsupported for members over several devices.
void save_family_bundle(const std::string& directory, const FamilyBundle& bundle);
FamilyBundle load_family_bundle(const BundleSource& source, const std::shared_ptr<Allocator>& allocator,
                                const Weights& given = {});

}  // namespace sluice
