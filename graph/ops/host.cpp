#include "graph/ops/host.h"

#include <cctype>
#include <charconv>

#include "graph/executor.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

using Values = std::vector<Value>;

// "float32(4, 3), int64(8,)" as types: the text TensorType::str() prints.
std::vector<TensorType> parse_types(const std::string& text) {
  std::vector<TensorType> types;
  size_t at = 0;
  const auto bad = [&] {
    fail(ErrorKind::kValue, "outputs: cannot read '{}' at {}; must be a list like 'float32(4, 3), int64(8,)'", text,
         at);
  };
  const auto skip = [&] {
    while (at < text.size() && (text[at] == ' ' || text[at] == ',')) ++at;
  };
  for (skip(); at < text.size(); skip()) {
    const size_t open = text.find('(', at);
    if (open == std::string::npos) bad();
    TensorType type{parse_dtype(std::string_view(text).substr(at, open - at)), {}};
    at = open + 1;
    for (skip(); at < text.size() && text[at] != ')'; skip()) {
      int64_t dim = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), dim);
      if (error != std::errc()) bad();
      at = static_cast<size_t>(end - text.data());
      type.shape.push_back(dim);
    }
    if (at >= text.size()) bad();
    ++at;
    numel(type.shape);
    types.push_back(type);
  }
  SLUICE_CHECK(!types.empty(), "outputs: none given; a host function must have an output");
  return types;
}

const OpDef host_function_def{
    .name = "host_function",
    .doc =
        "Calls the function registered as `name` with the engine (Python or C++), on a host stream; it writes the "
        "`outputs`, a list of types like 'float32(4, 3), int64(8,)'. Not differentiable.",
    .inputs = {"xs*"},
    .params = {{.name = "name", .default_value = std::string(), .required = true},
               {.name = "outputs", .default_value = std::string(), .required = true}},
    .num_outputs = -1,
    .infer = [](Types, Present, const Attrs& attrs) { return parse_types(attr<std::string>(attrs, 1)); },
    .grad = [](const GradContext& c) -> Values {
      fail(ErrorKind::kUnsupported, "host_function: '{}' has no gradient; detach its inputs or use autograd.Function",
           attr<std::string>(c.attrs, 0));
    },
    .sbp = broadcast_sbp,
    .effectful = true,
    .host = true};

const OpDef* const kOps[] = {&host_function_def};

}  // namespace

std::span<const OpDef* const> host_ops() { return kOps; }

std::vector<Value> host_function(std::span<const Value> inputs, const std::string& name,
                                 std::span<const TensorType> outputs) {
  std::string types;
  for (const TensorType& t : outputs) types += (types.empty() ? "" : ", ") + t.str();
  return call(host_function_def, inputs, {name, types});
}

}  // namespace sluice::ops
