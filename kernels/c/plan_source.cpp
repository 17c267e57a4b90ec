#include "kernels/c/plan_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include "base/error.h"
#include "kernels/c/printer.h"
#include "kernels/c/target.h"
#include "plan/query.h"

namespace sluice::c {
namespace {

// Memory holds values of several types one after the other, which C's rules of aliasing have to be told.
constexpr const char* kPrelude = R"(#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ALIAS __attribute__((may_alias))
#define ALIGNED __attribute__((aligned(64)))
#else
#define ALIAS
#define ALIGNED
#endif
typedef float ALIAS f32;
typedef double ALIAS f64;
typedef uint8_t ALIAS u8;
typedef int8_t ALIAS i8;
typedef int16_t ALIAS i16;
typedef int32_t ALIAS i32;
typedef int64_t ALIAS i64;
typedef uint64_t u64;
)";

// The name of a dtype in a header.
const char* public_type(DType dtype) {
  const std::string_view type = memory_type(dtype);
  return type == "f32"   ? "float"
         : type == "f64" ? "double"
         : type == "u8"  ? "uint8_t"
         : type == "i8"  ? "int8_t"
         : type == "i16" ? "int16_t"
         : type == "i32" ? "int32_t"
                         : "int64_t";
}

template <class T>
T element(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::string element_text(const void* data, DType dtype, int64_t i) {
  const auto integer = [](int64_t v) { return v == INT64_MIN ? "INT64_MIN" : fmt::format("{}", v); };
  switch (dtype) {
    case DType::kFloat32: return literal(element<float>(data, i), dtype);
    case DType::kFloat64: return literal(element<double>(data, i), dtype);
    case DType::kInt64: return integer(element<int64_t>(data, i));
    case DType::kInt32: return integer(element<int32_t>(data, i));
    case DType::kInt16: return integer(element<int16_t>(data, i));
    case DType::kInt8: return integer(element<int8_t>(data, i));
    default: return integer(element<uint8_t>(data, i));
  }
}

class Writer {
 public:
  Writer(const plan::Plan& plan, const std::string& name, const Contents& contents)
      : plan_(plan), name_(name), contents_(contents), written_(plan::written_variables(plan)) {}

  PlanSource write() {
    check();
    std::string steps;
    for (const int actor : plan_.certificate)
      for (const plan::Instr& instr : plan_.actors[static_cast<size_t>(actor)].program)
        if (instr.kind == plan::InstrKind::kRun) steps += call_of(instr.index);
    PlanSource made;
    made.header = header();
    made.source =
        fmt::format("/* Plan \"{}\", written by sluice-compile. One step runs at a time. */\n", comment(plan_.name)) +
        kPrelude + shared_.functions() + "\n" + memory() + functions_ + "\n" +
        fmt::format("int {}_run(void) {{\n{}{}  return 0;\n}}\n", name_, calls_ > 0 ? "  int error;\n" : "", steps) +
        ports() + errors();
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::kUnsupported, "plan '{}' as C: {}; in C a step runs once, in one fixed order, on device {}",
         plan_.name, what, device().str());
  }

  // Every actor fires once a step, so that each register has its first slot.
  void check() const {
    SLUICE_CHECK(c_name(name_) == name_, "plan '{}' as C: name \"{}\": is none in C; use \"{}\"", plan_.name, name_,
                 c_name(name_));
    std::vector<int> firings(plan_.actors.size(), 0);
    for (const int actor : plan_.certificate) ++firings[static_cast<size_t>(actor)];
    for (size_t a = 0; a < firings.size(); ++a) {
      if (firings[a] != 1 || plan_.actors[a].role == plan::ActorRole::kSource)
        refuse(fmt::format("actor '{}' fires {} times a step", plan_.actors[a].name, firings[a]));
    }
    for (const plan::Register& reg : plan_.registers)
      if (reg.emit_every != 1 || reg.initial_tokens != 0)
        refuse(fmt::format("register '{}' has other than one token a step", reg.name));
    for (const plan::Edge& edge : plan_.edges)
      if (edge.take != 1 || edge.hold != 1)
        refuse(fmt::format("register '{}' has other than one token a step",
                           plan_.registers[static_cast<size_t>(edge.reg)].name));
    for (const plan::Stream& stream : plan_.streams)
      if (stream.device.kind != device().kind && stream.device.kind != DeviceKind::kCpu)
        refuse(fmt::format("stream '{}' is of another device", stream.name));
    std::set<std::string> names;
    const auto check_port = [&](const char* way, const std::string& port, const TensorSpec& spec) {
      check_dense(port, spec);
      const bool own = names.insert(port_name(way, port)).second;
      SLUICE_CHECK(own, "plan '{}' as C: {} '{}': would be called {}, as another is; give it another name", plan_.name,
                   way, port, port_name(way, port));
    };
    for (const plan::Input& port : plan_.inputs) check_port("input", port.name, port.spec);
    for (const plan::Output& port : plan_.outputs) check_port("output", port.name, port.view.spec);
  }

  void check_dense(const std::string& port, const TensorSpec& spec) const {
    if (!is_contiguous(spec.shape, spec.strides)) refuse(fmt::format("'{}' has strides {}", port, spec.strides.str()));
  }

  std::string slot(int reg, uint64_t offset) const {
    const plan::Register& r = plan_.registers[static_cast<size_t>(reg)];
    return buffer(r.slots.at(0), offset);
  }

  std::string buffer(int index, uint64_t offset) const {
    const plan::Buffer& b = plan_.buffers[static_cast<size_t>(index)];
    return fmt::format("memory{} + {}", b.arena, b.offset + offset);
  }

  std::string pointer(const plan::View& view, const char* qualifier) const {
    const char* const type = memory_type(view.spec.dtype);
    if (view.base == plan::BaseKind::kVariable) {
      const bool same = plan_.variables[static_cast<size_t>(view.index)].spec.dtype == view.spec.dtype;
      const uint64_t at = view.offset / dtype_size(view.spec.dtype);
      return (same ? "" : fmt::format("({}{}*)", qualifier, type)) + fmt::format("v{}", view.index) +
             (at == 0 ? "" : fmt::format(" + {}", at));
    }
    const bool slots = view.base == plan::BaseKind::kRegister;
    return fmt::format("({}{}*)({})", qualifier, type,
                       slots ? slot(view.index, view.offset) : buffer(view.index, view.offset));
  }

  // Equal kernels are one function, which every call gives its operands.
  std::string call_of(int index) {
    const plan::Kernel& kernel = plan_.kernels[static_cast<size_t>(index)];
    plan::Stream stream;
    stream.device = device();
    const plan::KernelQuery query = plan::query_of(plan_, kernel, stream);
    const auto printer = printers().find(kernel.op);
    if (printer == printers().end()) refuse(fmt::format("op {} has no kernel in C", kernel.op));
    std::string parameters, operands;
    const auto add = [&](const char* name, size_t k, const plan::View& view, const char* qualifier) {
      const char* const comma = parameters.empty() ? "" : ", ";
      const bool absent = plan::is_absent(view);
      parameters +=
          fmt::format("{}{}{}* {}{}", comma, qualifier, absent ? "void" : memory_type(view.spec.dtype), name, k);
      operands += comma + (absent ? "0" : pointer(view, qualifier));
    };
    for (size_t k = 0; k < kernel.inputs.size(); ++k) add("x", k, kernel.inputs[k], "const ");
    for (size_t k = 0; k < kernel.outputs.size(); ++k) add("y", k, kernel.outputs[k], "");
    std::string unused;
    const std::string body = printer->second.print(query, shared_);
    for (size_t k = 0; k < kernel.inputs.size(); ++k)
      if (body.find(fmt::format("x{}[", k)) == std::string::npos) unused += fmt::format("  (void)x{};\n", k);
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
      if (body.find(fmt::format("y{}[", k)) == std::string::npos) unused += fmt::format("  (void)y{};\n", k);
    const std::string text = fmt::format("({}) {{\n{}{}  return 0;\n}}\n", parameters, unused, body);
    const auto [it, added] = names_.try_emplace(text, fmt::format("k{}_{}", names_.size(), c_name(kernel.op)));
    if (added) functions_ += fmt::format("\nstatic int {}{}", it->second, text);
    ++calls_;
    return fmt::format("  if ((error = {}({})) != 0) return error; /* {} */\n", it->second, operands,
                       comment(kernel.name));
  }

  static std::string comment(std::string text) {
    for (size_t at = text.find("*/"); at != std::string::npos; at = text.find("*/")) text.replace(at, 2, "* /");
    return text;
  }

  std::string memory() const {
    std::string text;
    for (size_t a = 0; a < plan_.arenas.size(); ++a)
      if (plan_.arenas[a].bytes > 0)
        text += fmt::format("static unsigned char ALIGNED memory{}[{}]; /* {} */\n", a, plan_.arenas[a].bytes,
                            comment(plan_.arenas[a].name));
    for (size_t v = 0; v < plan_.variables.size(); ++v) text += variable(v);
    return text;
  }

  std::string variable(size_t index) const {
    const plan::Variable& v = plan_.variables[index];
    const int64_t count = numel(v.spec.shape);
    const void* const data = contents_(v.name);
    SLUICE_CHECK(is_contiguous(v.spec.shape, v.spec.strides),
                 "plan '{}' as C: variable '{}' has strides {}; must be "
                 "contiguous",
                 plan_.name, v.name, v.spec.strides.str());
    SLUICE_CHECK(data != nullptr || count == 0,
                 "plan '{}' as C: variable '{}' has no contents; give a bundle with its "
                 "weights",
                 plan_.name, v.name);
    std::string text = fmt::format("static {}{} v{}[{}] = {{ /* {} */", written_[index] ? "" : "const ",
                                   memory_type(v.spec.dtype), index, std::max<int64_t>(count, 1), comment(v.name));
    for (int64_t i = 0; i < count; ++i) text += (i % 8 == 0 ? "\n  " : " ") + element_text(data, v.spec.dtype, i) + ",";
    return text + (count == 0 ? "0" : "") + "\n};\n";
  }

  std::string port_name(const char* way, const std::string& port) const {
    return fmt::format("{}_{}_{}", name_, way, c_name(port));
  }

  std::string ports() const {
    std::string text;
    for (const plan::Input& port : plan_.inputs)
      text += fmt::format("{0}* {1}(void) {{ return ({0}*)({2}); }}\n", public_type(port.spec.dtype),
                          port_name("input", port.name), slot(port.reg, 0));
    for (const plan::Output& port : plan_.outputs)
      text += fmt::format("const {0}* {1}(void) {{ return (const {0}*)({2}); }}\n", public_type(port.view.spec.dtype),
                          port_name("output", port.name), pointer(port.view, "const "));
    return text;
  }

  std::string errors() const {
    std::string text = fmt::format("const char* {}_error(int error) {{\n  switch (error) {{\n", name_);
    for (size_t e = 0; e < shared_.errors().size(); ++e) {
      std::string quoted;
      for (const char c : shared_.errors()[e]) quoted += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
      text += fmt::format("    case {}: return \"{}\";\n", e + 1, quoted);
    }
    return text + "  }\n  return error == 0 ? \"\" : \"unknown error\";\n}\n";
  }

  std::string header() const {
    uint64_t arenas = 0;
    for (const plan::Arena& arena : plan_.arenas) arenas += arena.bytes;
    std::string text = fmt::format(
        "/* Plan \"{}\", written by sluice-compile: {} bytes of memory beside its weights.\n"
        "   Write all inputs, run, read the results; one step at a time. */\n"
        "#ifndef {}_H\n#define {}_H\n#include <stdint.h>\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
        comment(plan_.name), arenas, name_, name_);
    const auto declare = [&](const char* qualifier, const char* way, const std::string& port, const TensorSpec& spec) {
      text += fmt::format("{}{}* {}(void); /* {}{} */\n", qualifier, public_type(spec.dtype), port_name(way, port),
                          dtype_name(spec.dtype), spec.shape.str());
    };
    for (const plan::Input& port : plan_.inputs) declare("", "input", port.name, port.spec);
    for (const plan::Output& port : plan_.outputs) declare("const ", "output", port.name, port.view.spec);
    return text + fmt::format(
                      "int {0}_run(void);                  /* 0, or the number of an error */\n"
                      "const char* {0}_error(int error); /* its text */\n\n"
                      "#ifdef __cplusplus\n}}\n#endif\n#endif\n",
                      name_);
  }

  const plan::Plan& plan_;
  const std::string& name_;
  const Contents& contents_;
  const std::vector<bool> written_;
  Shared shared_;
  std::map<std::string, std::string> names_;  // of functions, by what follows the name
  std::string functions_;
  int calls_ = 0;
};

}  // namespace

PlanSource plan_source(const plan::Plan& plan, const std::string& name, const Contents& contents) {
  return Writer(plan, name, contents).write();
}

std::string c_name(const std::string& text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "_" + name : name;
}

}  // namespace sluice::c
