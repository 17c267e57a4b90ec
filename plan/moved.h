#pragma once
// A plan, carried over to another device.
#include "plan/plan.h"

namespace sluice::plan {

// The device that is not the host's, where the plan has one such and no other; the host's where it has none. Throws
// kUnsupported for a plan of several devices.
DeviceId device_of(const Plan& plan);
// The plan that would be made for `to` in the place of `from`, where both give the same answers (Target).
// REQUIRES: both are of one kind.
void move_plan(Plan& plan, const DeviceId& from, const DeviceId& to);

}  // namespace sluice::plan
