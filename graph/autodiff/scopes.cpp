// The modes that a thread has asked of its tapes.
#include <utility>

#include "graph/autodiff/anomaly.h"
#include "graph/autodiff/saved_hooks.h"

namespace sluice {
namespace {

thread_local SavedHooksScope* hooks = nullptr;
thread_local AnomalyScope* anomaly = nullptr;

}  // namespace

SavedHooksScope::SavedHooksScope(Pack pack) : pack_(std::move(pack)), outer_(std::exchange(hooks, this)) {}
SavedHooksScope::~SavedHooksScope() { hooks = outer_; }
const SavedHooksScope::Pack* SavedHooksScope::innermost() { return hooks && hooks->pack_ ? &hooks->pack_ : nullptr; }

AnomalyScope::AnomalyScope(Line line, HasNan has_nan)
    : line_(std::move(line)), has_nan_(std::move(has_nan)), outer_(std::exchange(anomaly, this)) {}
AnomalyScope::~AnomalyScope() { anomaly = outer_; }
const AnomalyScope* AnomalyScope::innermost() { return anomaly && anomaly->line_ ? anomaly : nullptr; }

}  // namespace sluice
