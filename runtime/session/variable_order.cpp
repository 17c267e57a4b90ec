#include "runtime/session/variable_order.h"

namespace sluice {

void BoundVariables::attach(const std::weak_ptr<StorageUser>& user) const {
  for (size_t v = 0; v < storages_.size(); ++v) storages_[v]->attach(user, written_[v]);
  for (const auto& copy : packed_) copy->memory()->attach(user, false);
}

void BoundVariables::detach(const StorageUser* user) const {
  for (const auto& storage : storages_) storage->detach(user);
  for (const auto& copy : packed_) copy->memory()->detach(user);
}

void BoundVariables::wait_for_others(const StorageUser* self) const {
  for (size_t v = 0; v < storages_.size(); ++v) {
    if (written_[v]) {
      storages_[v]->before_write(self);
    } else {
      storages_[v]->before_read(self);
    }
  }
  for (const auto& copy : packed_) copy->refresh();
}

void BoundVariables::count_writes() const {
  for (size_t v = 0; v < storages_.size(); ++v)
    if (written_[v]) storages_[v]->count_write();
}

uint64_t VariableAccesses::due(const plan::FiringCounts& counts, uint64_t steps, bool writes_only) const {
  uint64_t due = 0;
  for (const int actor : actors(writes_only)) due += counts.after(actor, steps);
  return due;
}

}  // namespace sluice
