#include "runtime/family/needed_ops.h"

#include "plan/json/json.h"
#include "plan/loop_program.h"
#include "runtime/bundle/bundle.h"
#include "runtime/family/family_bundle.h"

namespace sluice {
namespace {

void add_ops(const NamedAttrs& attrs, std::set<std::string>& ops) {
  for (const auto& [name, attr] : attrs) {
    const AttrGraph* const program = std::get_if<AttrGraph>(&attr);
    if (program == nullptr) continue;
    for (const AttrCall& call : program->calls) {
      if (call.op != plan::kWindow) ops.insert(call.op);
      add_ops(call.attrs, ops);
    }
  }
}

}  // namespace

std::set<std::string> needed_ops(const plan::Plan& plan) {
  std::set<std::string> ops;
  for (const plan::Kernel& kernel : plan.kernels) {
    ops.insert(kernel.op);
    if (kernel.op == "foreign") {  // which runs its program as a loop does, and its body never
      ops.insert("loop");
      add_ops({{"program", get_attr<AttrGraph>(kernel.attrs, "program")}}, ops);
      continue;
    }
    add_ops(kernel.attrs, ops);
  }
  for (const plan::PackedCopy& copy : plan.packed)
    if (copy.derived) ops.insert(copy.derived->op);
  return ops;
}

std::set<std::string> needed_ops(const BundleSource& source) {
  if (!is_family_bundle(source)) return needed_ops(plan::from_json(source.text(kPlanFile), source.path(kPlanFile)));
  std::set<std::string> ops;
  for (const plan::Plan& plan : load_family_plans(source).members) ops.merge(needed_ops(plan));
  return ops;
}

}  // namespace sluice
