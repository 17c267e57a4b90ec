#pragma once
// Reads what a query of multi_update asks for, and where the operands of its calls are: one reading for all devices.
#include <optional>
#include <string>

#include "base/error.h"
#include "plan/query.h"
#include "plan/target.h"

namespace sluice {

struct UpdateCalls {
  // Throws kValue where the operands are not those of calls of the body.
  explicit UpdateCalls(const plan::KernelQuery& query)
      : inputs(static_cast<size_t>(body(query).inputs)),
        count(static_cast<size_t>(get_attr<int64_t>(query.attrs, "count"))) {
    check_attr_graph(body(query), inputs, 1);
    SLUICE_CHECK(count >= 1 && query.inputs.size() == count * inputs,
                 "multi_update: {} operands for {} calls; must be {} of each", query.inputs.size(), count, inputs);
    const auto as = plan::beside<std::string>(query.attrs, "copy", "");
    if (!as.empty()) copy = parse_dtype(as);
    replaced = query.outputs.size() / count - (copy ? 1 : 0);
  }
  static const AttrGraph& body(const plan::KernelQuery& query) { return get_attr<AttrGraph>(query.attrs, "body"); }

  // The place of input v of the body among the query's inputs: first what calls replace, then the others of each.
  size_t place(size_t v, size_t call) const {
    return v < replaced ? call * replaced + v : count * replaced + call * (inputs - replaced) + v - replaced;
  }

  size_t inputs, count;         // of the body, and of calls
  size_t replaced = 0;          // by a call: the first of its inputs
  std::optional<DType> copy{};  // the dtype that the parameter of the only call is also written in
};

}  // namespace sluice
