#include "tensor/session/graph_family.h"

#include <algorithm>
#include <numeric>

#include "plan/pack/ledger.h"
#include "runtime/family/family_bundle.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "runtime/session/shared_arenas.h"
#include "tensor/eager.h"

namespace sluice {

void save_family(const std::string& dir, const plan::Family& family, const std::vector<const GraphSession*>& members,
                 const std::map<std::string, std::string>& meta) {
  FamilyBundle bundle{family, {}, meta};
  BundledTensors written;
  for (const GraphSession* member : members) {
    SLUICE_CHECK_KIND(kUnsupported, !member->of_ranks(),
                      "family '{}': the ranks of a job run it; bundles of such graphs have one plan each", family.name);
    bundle.members.push_back(member->bundle(&written));
    for (const auto& [key, value] : bundle.members.back().meta) bundle.meta.emplace(key, value);
  }
  save_family_bundle(dir, bundle);
}

GraphFamily load_family(EagerExecutor& eager, const BundleSource& source, GraphSessionOptions options) {
  const std::string& dir = source.name();
  FamilyBundle bundle = load_family_bundle(source, make_host_allocator());
  GraphFamily family{std::move(bundle.family), {}, bundle.meta};
  if (options.session.arenas == nullptr) options.session.arenas = std::make_shared<SharedArenas>(eager.engine());
  LoadedTensors tensors;
  // The largest first: what it has room for is not made anew.
  std::vector<size_t> order(bundle.members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<uint64_t> bytes;
  for (const Bundle& member : bundle.members) bytes.push_back(plan::ledger(member.plan).arenas);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  family.members.resize(order.size());
  for (const size_t m : order) {
    bundle.members[m].meta = bundle.meta;
    family.members[m] =
        GraphSession::load(eager, std::move(bundle.members[m]), member_directory(dir, m), options, &tensors);
    about_file(dir, kFamilyFile, [&] { check_member(family.family, m, *family.members[m]); });
  }
  return family;
}

void check_member(const plan::Family& family, size_t member, GraphSession& session) {
  const auto named = [](const std::vector<PortInfo>& ports) {
    std::vector<plan::NamedType> types;
    for (const PortInfo& port : ports) types.push_back({port.name, port.type});
    return types;
  };
  plan::check_member(family, member, named(session.session().inputs()), named(session.session().outputs()));
  plan::check_updates(family, session.compiled().plan);
}

}  // namespace sluice
