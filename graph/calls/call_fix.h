#pragma once
// Finds, and makes, the smallest change of an op call that lets it be traced: the op's own `infer` is the judge.
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/fix.h"
#include "graph/op_def.h"

namespace sluice {

// While one lives, failed calls of this thread look for a fix, and `fixes` are made to the calls they name.
class CallFixScope {
 public:
  CallFixScope(std::vector<Fix> fixes, std::function<SourceLocation()> source);
  ~CallFixScope();
  CallFixScope(const CallFixScope&) = delete;
  CallFixScope& operator=(const CallFixScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
  CallFixScope* outer_;
  friend struct CallFixes;
};

// The fixes belong to this thread; they have no effect outside a scope.
struct CallFixes {
  // Changes operands and attributes of this call as the scope's fixes say.
  static void apply(const OpDef& op, std::vector<Value>& inputs, Attrs& attrs);
  // The text of a fix's `field` ("device", "stream") for calls at this line; null when there is none.
  static const std::string* placement(const SourceLocation& line, const char* field);
  // `error` with the fix found, if there is one.
  [[noreturn]] static void rethrow(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
                                   const Error& error);
  static bool active();
  static SourceLocation line();  // where the scope's program is now; unknown outside one
};

// The first of the candidates, smallest change first, for which `op` accepts the operands; empty when none does.
Fix find_call_fix(const OpDef& op, Types inputs, std::span<const bool> present, const Attrs& attrs);

}  // namespace sluice
