#include <cmath>

#include "plan/json/json.h"

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

// Values of one kind, and how a plan writes them.
struct AttrJson {
  static std::string tagged(const char* tag, const std::string& value) {
    return fmt::format(R"({{"{}": {}}})", tag, value);
  }
  static std::string number(double v) { return fmt::format("\"{}\"", v); }
  static std::string dtype(DType v) { return fmt::format("\"{}\"", dtype_name(v)); }
  static std::string type(const TensorType& v) {
    return fmt::format(R"({{"dtype": "{}", "shape": {}}})", dtype_name(v.dtype), numbers_json(v.shape));
  }
  static std::string call(const AttrCall& v) {
    const auto result = [](const TensorSpec& spec) { return "{" + spec_json(spec) + "}"; };
    const std::string results =
        v.results.empty() ? std::string() : fmt::format(R"(, "results": {})", list_json(v.results, result));
    return fmt::format(R"({{"op": {}, "attrs": {}, "operands": {}{}}})", quoted_json(v.op), attrs_json(v.attrs),
                       numbers_json(v.operands), results);
  }

  std::string operator()(NoAttr) const { return "null"; }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return tagged("double", number(v)); }
  std::string operator()(const std::string& v) const { return quoted_json(v); }
  std::string operator()(const Ints& v) const { return numbers_json(v); }
  std::string operator()(DType v) const { return tagged("dtype", dtype(v)); }
  std::string operator()(const Bools& v) const { return tagged("bools", list_json(v, *this)); }
  std::string operator()(const Doubles& v) const { return tagged("doubles", list_json(v, number)); }
  std::string operator()(const Strings& v) const { return tagged("strings", list_json(v, *this)); }
  std::string operator()(const DTypes& v) const { return tagged("dtypes", list_json(v, dtype)); }
  std::string operator()(const TensorType& v) const { return tagged("type", type(v)); }
  std::string operator()(const TensorTypes& v) const { return tagged("types", list_json(v, type)); }
  std::string operator()(const AttrGraph& v) const {
    return tagged("graph", fmt::format(R"({{"inputs": {}, "calls": {}, "outputs": {}}})", v.inputs,
                                       list_json(v.calls, call), numbers_json(v.outputs)));
  }
};

std::string view_json(const View& view) {
  return fmt::format(R"({{"base": "{}", "index": {}, "token": {}, "offset": {}, {}{}}})", base_kind_name(view.base),
                     view.index, view.token, view.offset, spec_json(view.spec),
                     view.packed < 0 ? std::string() : fmt::format(R"(, "packed": {})", view.packed));
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
std::string json(const PackedCopy& v) {
  std::string derived;
  if (v.derived)
    derived = fmt::format(R"(, "derived": {{"op": {}, "attrs": {}, "inputs": {}, {}}})", quoted_json(v.derived->op),
                          attrs_json(v.derived->attrs), numbers_json(v.derived->inputs), spec_json(v.derived->spec));
  return fmt::format(R"({{"name": {}, "variable": {}, "format": {}, "bytes": {}{}}})", quoted_json(v.name), v.variable,
                     quoted_json(v.format), v.bytes, derived);
}
std::string json(const Kernel& v) {
  return fmt::format(R"({{"name": {}, "op": {}, "attrs": {}, "inputs": {}, "outputs": {}, "workspace": {}, )"
                     R"("file": {}, "line": {}, "module": {}, {}{}"cost_ns": {}, "collective": {}}})",
                     quoted_json(v.name), quoted_json(v.op), attrs_json(v.attrs), list_json(v.inputs, view_json),
                     list_json(v.outputs, view_json), v.workspace, quoted_json(v.source.file), v.source.line,
                     quoted_json(v.module),
                     v.role == Role::kForward ? "" : fmt::format(R"("role": "{}", )", role_name(v.role)),
                     v.placed == Placed::kDefault ? "" : fmt::format(R"("placed": "{}", )", placed_name(v.placed)),
                     cost_json(v.cost_ns), v.collective);
}
std::string json(const Actor& v) {
  const auto instr = [](const Instr& i) { return fmt::format(R"(["{}", {}])", instr_kind_name(i.kind), i.index); };
  return fmt::format(R"({{"name": {}, "stream": {}, "role": "{}", "program": {}{}}})", quoted_json(v.name), v.stream,
                     actor_role_name(v.role), list_json(v.program, instr),
                     v.starts == 1 ? std::string() : fmt::format(R"(, "starts": {})", v.starts));
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
  const auto extent = [](const ExtentOf& e) {
    return fmt::format(R"(, "extent_of": {{"output": {}, "axis": {}, "dim": {}}})", quoted_json(e.output), e.axis,
                       quoted_json(e.dim));
  };
  const std::string axes = v.axes.empty() ? "" : R"(, "axes": )" + numbers_json(v.axes);
  return fmt::format(R"({{"name": {}, "view": {}{}{}}})", quoted_json(v.name), view_json(v.view),
                     v.extent_of ? extent(*v.extent_of) : std::string(), axes);
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

std::string attr_json(const Attr& attr) { return std::visit(AttrJson{}, attr); }

std::string to_json(const Plan& plan) {
  std::string s =
      fmt::format("{{\"schema_version\": {},\n\"name\": {},\n\"options\": {},\n\"target\": {}", plan.schema_version,
                  quoted_json(plan.name), attrs_json(plan.options), quoted_json(plan.target));
  append_section(s, "spaces", plan.spaces);
  append_section(s, "streams", plan.streams);
  append_section(s, "arenas", plan.arenas);
  append_section(s, "buffers", plan.buffers);
  append_section(s, "variables", plan.variables);
  if (!plan.packed.empty()) append_section(s, "packed", plan.packed);
  append_section(s, "kernels", plan.kernels);
  append_section(s, "actors", plan.actors);
  append_section(s, "registers", plan.registers);
  append_section(s, "edges", plan.edges);
  append_section(s, "inputs", plan.inputs);
  append_section(s, "outputs", plan.outputs);
  return s + ",\n\"certificate\": " + numbers_json(plan.certificate) + "\n}\n";
}

}  // namespace sluice::plan
