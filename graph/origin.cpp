#include "graph/origin.h"

#include <utility>

namespace sluice {

static thread_local const OriginScope* innermost_scope = nullptr;

OriginScope::OriginScope(Role role, const Provenance* of)
    : role_(role), of_(of), outer_(std::exchange(innermost_scope, this)) {}

OriginScope::~OriginScope() { innermost_scope = outer_; }

const OriginScope* OriginScope::innermost() { return innermost_scope; }

}  // namespace sluice
