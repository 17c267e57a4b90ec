#include "base/provenance.h"

#include <iterator>
#include <utility>

namespace sluice {

static constexpr const char* kRoleNames[] = {"forward", "backward", "update", "data", "recompute"};
static_assert(std::size(kRoleNames) == kRoles);

const char* role_name(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

Role parse_role(std::string_view name) {
  std::string known;
  for (size_t i = 0; i < std::size(kRoleNames); ++i) {
    if (name == kRoleNames[i]) return static_cast<Role>(i);
    known += (i == 0 ? "" : ", ") + std::string(kRoleNames[i]);
  }
  fail(ErrorKind::kValue, "role: \"{}\"; must be one of {}", name, known);
}

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
