#pragma once
// On whose behalf calls are made: what runs for a call of the user's, such as its gradient rule, belongs to that one.
#include "base/provenance.h"

namespace sluice {

// Calls of this thread have `role` while it lives, and the line and module of `of` where that is given. The innermost
// scope counts. REQUIRES: *of outlives it.
class OriginScope {
 public:
  explicit OriginScope(Role role, const Provenance* of = nullptr);
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;

  static const OriginScope* innermost();  // of this thread; null outside any
  Role role() const { return role_; }
  const Provenance* of() const { return of_; }

 private:
  const Role role_;
  const Provenance* const of_;
  const OriginScope* const outer_;
};

}  // namespace sluice
