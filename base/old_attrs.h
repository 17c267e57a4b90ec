#pragma once
// Attributes as files have them that were written when these could be no lists, types or graphs, but text.
#include <string_view>

#include "base/attr.h"

namespace sluice {

// Brings the attributes of one call of `op`, which has `inputs`, into the form of today: steps of `fused` ("mul 0 1;
// gelu:tanh 2"), outputs of `host_function` ("float32(4, 3), int64(8,)"), mesh and sbp of `to_global` ("sim:0-3",
// "S(0)"). Those of today are left as they are. Throws kValue "<op>: ..." for text that is neither.
void read_old_attrs(std::string_view op, size_t inputs, NamedAttrs& attrs);

}  // namespace sluice
