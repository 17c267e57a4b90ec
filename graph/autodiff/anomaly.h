#pragma once
// Looking for the call whose gradient goes wrong: torch.autograd.detect_anomaly.
#include <functional>

#include "base/error.h"
#include "graph/value.h"

namespace sluice {

// While one lives, calls that this thread records remember the line that `line` tells, and its backward passes name it
// in their errors. With `has_nan`, a gradient of which that is true is an error. The innermost scope counts.
class AnomalyScope {
 public:
  using Line = std::function<SourceLocation()>;
  using HasNan = std::function<bool(const Value&)>;
  AnomalyScope(Line line, HasNan has_nan);  // no `line`: nothing is looked for
  ~AnomalyScope();
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

  static const AnomalyScope* innermost();  // of this thread; null when nothing is looked for
  SourceLocation line() const { return line_(); }
  bool has_nan(const Value& value) const { return has_nan_ && has_nan_(value); }

 private:
  const Line line_;
  const HasNan has_nan_;
  AnomalyScope* const outer_;
};

}  // namespace sluice
