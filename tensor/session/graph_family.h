#pragma once
// Families of compiled graphs to bundles, and back (runtime/family/family_bundle.h).
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/family/family.h"
#include "runtime/bundle/bundle_source.h"
#include "tensor/session/graph_session.h"

namespace sluice {

// Writes a family whose members these are, in its order. A variable that they share is written once.
void save_family(const std::string& dir, const plan::Family& family, const std::vector<const GraphSession*>& members,
                 const std::map<std::string, std::string>& meta);

struct GraphFamily {
  plan::Family family;
  std::vector<std::unique_ptr<GraphSession>> members;
  std::map<std::string, std::string> meta;
};
// The members share their variables and the memory of their arenas: one of them at a time may have steps in flight.
GraphFamily load_family(EagerExecutor& eager, const BundleSource& source, GraphSessionOptions options = {});

// Throws where the plan of a session is not that of a member, or where padding would change what it does.
void check_member(const plan::Family& family, size_t member, GraphSession& session);

}  // namespace sluice
