#pragma once
// Public functions that are about memory or need values, as data: graph/forms/form.h.
#include <vector>

#include "graph/forms/form.h"

namespace sluice {

const std::vector<Form>& tensor_forms();

}  // namespace sluice
