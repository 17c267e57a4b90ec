#pragma once
// Steps of an optimizer for several parameters as one op, which the compiler makes for devices that have a kernel for
// it.
#include <span>

#include "graph/op_def.h"

namespace sluice::ops {

// `count` calls of the attribute `body`, whose last call is a step of an optimizer; those before it are elementwise,
// and make its gradient of what is given. The inputs of a body are first what its results replace, in their order, then
// the others. Those of the op are the former of each call, and then the others of each call. `copy` names a dtype, or
// nothing: of one call, the last result is then the parameter in that dtype.
const OpDef& multi_update_op();
namespace multi_update_attr {
enum { kBody, kCount, kCopy };
}
inline constexpr int64_t kMostUpdates = 64;  // calls

bool is_update(const OpDef& op);  // a step of an optimizer for one parameter

std::span<const OpDef* const> multi_update_ops();

}  // namespace sluice::ops
