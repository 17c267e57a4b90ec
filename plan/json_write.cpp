#include <cmath>

#include "plan/json.h"

namespace sluice::plan {
namespace {

template <class List, class One>
std::string list_json(const List& list, One one) {
  std::string s = "[";
  bool first = true;
  for (const auto& item : list) {
    if (!first) s += ", ";
    first = false;
    s += one(item);
  }
  return s + "]";
}

template <class List>
std::string numbers_json(const List& list) {
  return list_json(list, [](auto v) { return fmt::format("{}", v); });
}

// Whole numbers stay numbers; others are strings, which readers convert exactly.
std::string cost_json(double v) {
  if (std::floor(v) == v && std::fabs(v) < 9e15) return fmt::format("{}", static_cast<int64_t>(v));
  return fmt::format("\"{}\"", v);
}

std::string attrs_json(const NamedAttrs& attrs) {
  std::string s = "{";
  for (const auto& [name, value] : attrs) {
    if (s.size() > 1) s += ", ";
    s += quoted_json(name) + ": " + attr_json(value);
  }
  return s + "}";
}

std::string spec_json(const TensorSpec& spec) {
  return fmt::format(R"("dtype": "{}", "shape": {}, "strides": {})", dtype_name(spec.dtype), numbers_json(spec.shape),
                     numbers_json(spec.strides));
}

std::string view_json(const View& view) {
  return fmt::format(R"({{"base": "{}", "index": {}, "token": {}, "offset": {}, {}}})", base_kind_name(view.base),
                     view.index, view.token, view.offset, spec_json(view.spec));
}

std::string json(const Space& v) {
  return fmt::format(R"({{"kind": "{}", "device": "{}"}})", space_kind_name(v.kind), v.device.str());
}
std::string json(const Stream& v) {
  return fmt::format(R"({{"name": {}, "device": "{}", "kind": "{}", "index": {}, "cores": {}}})", quoted_json(v.name),
                     v.device.str(), stream_kind_name(v.kind), v.index, v.cores);
}
std::string json(const Arena& v) {
  return fmt::format(R"({{"name": {}, "space": {}, "stream": {}, "bytes": {}, "lower_bound": {}}})",
                     quoted_json(v.name), v.space, v.stream, v.bytes, v.lower_bound);
}
std::string json(const Buffer& v) {
  return fmt::format(R"({{"name": {}, "arena": {}, "offset": {}, "bytes": {}}})", quoted_json(v.name), v.arena,
                     v.offset, v.bytes);
}
std::string json(const Variable& v) {
  return fmt::format(R"({{"name": {}, "space": {}, {}, "constant": {}}})", quoted_json(v.name), v.space,
                     spec_json(v.spec), v.constant);
}
std::string json(const Kernel& v) {
  return fmt::format(R"({{"name": {}, "op": {}, "attrs": {}, "inputs": {}, "outputs": {}, "workspace": {}, )"
                     R"("file": {}, "line": {}, "module": {}, {}"cost_ns": {}, "collective": {}}})",
                     quoted_json(v.name), quoted_json(v.op), attrs_json(v.attrs), list_json(v.inputs, view_json),
                     list_json(v.outputs, view_json), v.workspace, quoted_json(v.source.file), v.source.line,
                     quoted_json(v.module),
                     v.role == Role::kForward ? "" : fmt::format(R"("role": "{}", )", role_name(v.role)),
                     cost_json(v.cost_ns), v.collective);
}
std::string json(const Actor& v) {
  const auto instr = [](const Instr& i) { return fmt::format(R"(["{}", {}])", instr_kind_name(i.kind), i.index); };
  return fmt::format(R"({{"name": {}, "stream": {}, "role": "{}", "program": {}}})", quoted_json(v.name), v.stream,
                     actor_role_name(v.role), list_json(v.program, instr));
}
std::string json(const Register& v) {
  return fmt::format(R"({{"name": {}, "producer": {}, "quota": {}, "bytes": {}, "slots": {}, "emit_every": {}, )"
                     R"("initial_tokens": {}, "in_place_of": {}}})",
                     quoted_json(v.name), v.producer, v.quota, v.bytes, numbers_json(v.slots), v.emit_every,
                     v.initial_tokens, v.in_place_of);
}
std::string json(const Edge& v) {
  return fmt::format(R"({{"reg": {}, "consumer": {}, "take": {}, "hold": {}}})", v.reg, v.consumer, v.take, v.hold);
}
std::string json(const Input& v) {
  return fmt::format(R"({{"name": {}, "reg": {}, {}}})", quoted_json(v.name), v.reg, spec_json(v.spec));
}
std::string json(const Output& v) {
  return fmt::format(R"({{"name": {}, "view": {}}})", quoted_json(v.name), view_json(v.view));
}

template <class T>
void append_section(std::string& s, const char* key, const std::vector<T>& entities) {
  s += fmt::format(",\n\"{}\": [", key);
  for (size_t i = 0; i < entities.size(); ++i) {
    s += i ? ",\n  " : "\n  ";
    s += json(entities[i]);
  }
  s += entities.empty() ? "]" : "\n]";
}

}  // namespace

std::string attr_json(const Attr& attr) {
  if (std::holds_alternative<NoAttr>(attr)) return "null";
  if (const auto* v = std::get_if<double>(&attr)) return fmt::format(R"({{"double": "{}"}})", *v);
  if (const auto* v = std::get_if<DType>(&attr)) return fmt::format(R"({{"dtype": "{}"}})", dtype_name(*v));
  if (const auto* v = std::get_if<std::string>(&attr)) return quoted_json(*v);
  if (const auto* v = std::get_if<Ints>(&attr)) return numbers_json(*v);
  return attr_str(attr);  // bool, int64
}

std::string to_json(const Plan& plan) {
  std::string s =
      fmt::format("{{\"schema_version\": {},\n\"name\": {},\n\"options\": {},\n\"target\": {}", plan.schema_version,
                  quoted_json(plan.name), attrs_json(plan.options), quoted_json(plan.target));
  if (plan.micro_batches != 1) s += fmt::format(",\n\"micro_batches\": {}", plan.micro_batches);
  append_section(s, "spaces", plan.spaces);
  append_section(s, "streams", plan.streams);
  append_section(s, "arenas", plan.arenas);
  append_section(s, "buffers", plan.buffers);
  append_section(s, "variables", plan.variables);
  append_section(s, "kernels", plan.kernels);
  append_section(s, "actors", plan.actors);
  append_section(s, "registers", plan.registers);
  append_section(s, "edges", plan.edges);
  append_section(s, "inputs", plan.inputs);
  append_section(s, "outputs", plan.outputs);
  return s + ",\n\"certificate\": " + numbers_json(plan.certificate) + "\n}\n";
}

}  // namespace sluice::plan
