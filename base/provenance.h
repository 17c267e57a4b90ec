#pragma once
// The origin of a piece of work: the user's line, the module it belongs to, and its role.
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sluice {

// kData: preparing what the model is given. kUpdate: changing parameters and the state of optimizers. kRecompute: what
// the forward pass has computed already, again for the backward pass.
enum class Role : uint8_t { kForward, kBackward, kUpdate, kData, kRecompute };
inline constexpr int kRoles = 5;
const char* role_name(Role role);        // "forward", "backward", "update", "data", "recompute"
Role parse_role(std::string_view name);  // throws kValue naming the roles there are

// Why a kernel runs on its device. kDefault: it is the graph's. kNamed: the program says so. kOrder: it is the first in
// the order of devices that has a kernel. kState: where the state that it maintains is read. kView: where what it shows
// lies.
enum class Placed : uint8_t { kDefault, kNamed, kOrder, kState, kView };
inline constexpr int kPlacedReasons = 5;
const char* placed_name(Placed placed);  // "default", "named", "order", "state", "view"
Placed parse_placed(std::string_view name);

struct Provenance {
  SourceLocation source;
  std::string module;  // "model.layer1.conv1"
  Role role = Role::kForward;
  int region = 0;     // of those whose values are computed again instead of kept (checkpoints), which one; 0: none
  bool kept = false;  // its values are kept all the same, since they took long to compute
  Placed placed = Placed::kDefault;

  // "train.py:41, backward, " as far as it is known, to stand in front of what names the module.
  std::string prefix() const;
};

// The provenance of one piece of work that replaces several: the first one's, and what that lacks from the next that
// knows. Rewrites of a graph say by it where their nodes come from.
Provenance merged(Provenance first, std::span<const Provenance* const> others);
Provenance merged(Provenance first, const Provenance& other);

}  // namespace sluice
