#pragma once
// Ops that say where logical tensors lie: they change nothing but the devices of a value, for the compiler to act on.
#include <span>

#include "base/device_mesh.h"
#include "base/nd_sbp.h"
#include "graph/op_def.h"

namespace sluice::ops {

// The attributes of a call of to_global, and what such a call asks for.
Attrs to_global_attrs(const GlobalPlacement& placement);
GlobalPlacement placement_of(const Attrs& attrs);

// The same logical tensor, lying on `mesh` as `sbp` says. Its gradient comes back to where x lies.
Value to_global(const Value& x, const DeviceMesh& mesh, const NdSbp& sbp);

// For passes, which act on these ops by identity.
const OpDef& to_global_op();
const OpDef& global_like_op();
std::span<const OpDef* const> global_ops();

}  // namespace sluice::ops
