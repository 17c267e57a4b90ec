#include "base/old_attrs.h"

#include <charconv>

#include "base/device_mesh.h"
#include "base/error.h"

namespace sluice {
namespace {

// The part of `text` before `mark`, which is taken off together with the mark.
std::string_view take(std::string_view& text, std::string_view mark) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + mark.size(), text.size()));
  return part;
}

AttrCall parse_step(std::string_view text, int values) {
  const std::string whole(text);
  AttrCall call;
  std::string_view name = take(text, " ");
  call.op = take(name, ":");
  if (call.op == "cast")
    call.attrs = {{"dtype", parse_dtype(name)}};
  else if (!name.empty())
    call.attrs = {{"approximate", std::string(name)}};
  while (!text.empty()) {
    const std::string_view word = take(text, " ");
    int& operand = call.operands.emplace_back(-1);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), operand);
    SLUICE_CHECK(error == std::errc() && end == word.data() + word.size() && operand >= 0 && operand < values,
                 "steps: '{}' in \"{}\"; must be the number of an input or of a step before, below {}", word, whole,
                 values);
  }
  SLUICE_CHECK(!call.op.empty() && !call.operands.empty(), "steps: \"{}\"; must be \"op operand...\"", whole);
  return call;
}

AttrGraph parse_steps(std::string_view text, size_t inputs) {
  AttrGraph graph{.inputs = static_cast<int>(inputs), .calls = {}, .outputs = {}};
  int values = graph.inputs;
  while (!text.empty()) graph.calls.push_back(parse_step(take(text, "; "), values++));
  SLUICE_CHECK(!graph.calls.empty(), "steps: \"\"; must have a step");
  graph.outputs = {values - 1};
  return graph;
}

TensorTypes parse_types(const std::string& text) {
  TensorTypes types;
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
    types.push_back(type);
  }
  return types;
}

// The text of an attribute, null when it is missing or no text.
const std::string* text_of(const NamedAttrs& attrs, std::string_view name) {
  for (const auto& [key, value] : attrs)
    if (key == name) return std::get_if<std::string>(&value);
  return nullptr;
}

}  // namespace

void read_old_attrs(std::string_view op, size_t inputs, NamedAttrs& attrs) try {
  if (op == "fused") {
    if (const std::string* steps = text_of(attrs, "steps")) attrs = {{"body", parse_steps(*steps, inputs)}};
  } else if (op == "host_function") {
    const std::string *name = text_of(attrs, "name"), *outputs = text_of(attrs, "outputs");
    if (name && outputs) attrs = {{"name", *name}, {"outputs", parse_types(*outputs)}};
  } else if (op == "to_global") {
    const std::string *mesh = text_of(attrs, "mesh"), *sbp = text_of(attrs, "sbp");
    if (mesh && sbp) attrs = placement_attrs({parse_mesh(*mesh), parse_sbp(*sbp)});
  }
} catch (const Error& error) {
  throw Error(error.kind(), fmt::format("{}: {}", op, error.what()));
}

}  // namespace sluice
