#include "base/provenance.h"

#include <iterator>
#include <utility>

namespace sluice {

static constexpr const char* kRoleNames[] = {"forward", "backward", "update", "data", "recompute"};
static_assert(std::size(kRoleNames) == kRoles);

static constexpr const char* kPlacedNames[] = {"default", "named", "order", "state", "view"};
static_assert(std::size(kPlacedNames) == kPlacedReasons);

static size_t index_of(const char* what, std::span<const char* const> names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return i;
  fail(ErrorKind::kValue, "{}: \"{}\"; must be one of {}", what, name, fmt::join(names, ", "));
}

const char* role_name(Role role) { return kRoleNames[static_cast<size_t>(role)]; }
const char* placed_name(Placed placed) { return kPlacedNames[static_cast<size_t>(placed)]; }

Role parse_role(std::string_view name) { return static_cast<Role>(index_of("role", kRoleNames, name)); }
Placed parse_placed(std::string_view name) { return static_cast<Placed>(index_of("placed", kPlacedNames, name)); }

std::string Provenance::prefix() const {
  return (source.known() ? source.str() + ", " : "") +
         (role == Role::kForward ? "" : fmt::format("{}, ", role_name(role)));
}

Provenance merged(Provenance first, std::span<const Provenance* const> others) {
  for (const Provenance* other : others) {
    if (!first.source.known()) first.source = other->source;
    if (first.module.empty()) first.module = other->module;
  }
  return first;
}

Provenance merged(Provenance first, const Provenance& other) {
  const Provenance* const others[] = {&other};
  return merged(std::move(first), others);
}

}  // namespace sluice
