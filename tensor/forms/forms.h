#pragma once
// Public functions that are about memory or need values, as data: graph/forms/form.h.
#include <vector>

#include "graph/forms/form.h"

namespace sluice {

const std::vector<Form>& tensor_forms();
// Those of networks, which are among them: layers that write what they are given, and checks of values.
std::vector<Form> network_tensor_forms();
// Those whose results are as long as the data say.
void add_data_dependent_forms(std::vector<Form>& forms);

}  // namespace sluice
