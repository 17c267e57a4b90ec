#include "kernels/c/plan_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "kernels/c/casts.h"
#include "kernels/c/function.h"
#include "kernels/c/memory.h"
#include "kernels/c/printer.h"
#include "kernels/c/target.h"
#include "kernels/c/weights.h"
#include "plan/query.h"

namespace sluice::c {
namespace {

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

class Writer {
 public:
  Writer(const plan::Plan& plan, const std::string& name, const Contents& contents, const Sections& sections)
      : plan_(plan), name_(name), contents_(contents), sections_(sections) {
    for (const char c : name) upper_ += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }

  PlanSource write() {
    check();
    CastsRead read = read_casts(plan_);
    join_again(read);
    const std::map<std::string, std::string> narrow = narrow_constants(read, contents_);
    plan_ = std::move(read.plan);
    written_ = plan::written_variables(plan_);
    const Contents own = [&](const std::string& variable) -> const void* {
      const auto found = narrow.find(variable);
      return found == narrow.end() ? contents_(variable) : found->second.data();
    };
    computed_ = std::move(read.computed);
    block_ = lay_out(plan_);
    std::string steps;
    for (const int actor : plan_.certificate)
      for (const plan::Instr& instr : plan_.actors[static_cast<size_t>(actor)].program)
        if (instr.kind == plan::InstrKind::kRun) steps += call_of(instr.index);
    PlanSource made;
    made.name = name_;
    made.memory = block_.bytes;
    made.tensors = tensors_of(plan_, block_, sections_);
    for (const plan::Input& port : plan_.inputs)
      made.inputs.push_back({port.name, port_name("input", port.name), port.spec.dtype, port.spec.shape});
    for (const plan::Output& port : plan_.outputs)
      made.outputs.push_back({port.name, port_name("output", port.name), port.view.spec.dtype, port.view.spec.shape});
    for (const Tensor& tensor : made.tensors)
      if (tensor.kind != Tensor::Kind::kMemory)
        (tensor.kind == Tensor::Kind::kState ? made.state : made.constants) += tensor.bytes;
    made.header = header(made);
    made.source =
        fmt::format("/* Plan \"{}\", written by sluice-compile. One step runs at a time. {} */\n", comment(plan_.name),
                    bits()) +
        kPrelude + places() + "\n" + shared_.functions() + "\n" + memory(own) + functions_ + "\n" +
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
    return buffer(plan_.registers[static_cast<size_t>(reg)].slots.at(0), offset);
  }

  std::string buffer(int index, uint64_t offset) const {
    const uint64_t at = block_.offsets[static_cast<size_t>(index)] + offset;
    return at == 0 ? "memory" : fmt::format("memory + {}", at);
  }

  std::string pointer(const plan::View& view, const char* qualifier) const {
    const char* const type = memory_type(view.spec.dtype);
    if (view.base == plan::BaseKind::kVariable) {
      const bool same = plan_.variables[static_cast<size_t>(view.index)].spec.dtype == view.spec.dtype;
      const uint64_t at = view.offset / dtype_size(view.spec.dtype);
      // The array is of another type, and the cast takes it before the offset is added.
      return (same ? "" : fmt::format("({}{}*)", qualifier, type)) +
             variable_name(plan_, static_cast<size_t>(view.index)) + (at == 0 ? "" : fmt::format(" + {}", at));
    }
    const bool slots = view.base == plan::BaseKind::kRegister;
    return fmt::format("({}{}*)(void*)({})", qualifier, type,
                       slots ? slot(view.index, view.offset) : buffer(view.index, view.offset));
  }

  // Equal kernels are one function, which every call gives its operands.
  std::string call_of(int index) {
    const plan::Kernel& kernel = plan_.kernels[static_cast<size_t>(index)];
    plan::Stream stream;
    stream.device = device();
    plan::KernelQuery query = plan::query_of(plan_, kernel, stream);
    std::map<size_t, DType> lie;
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
      const auto computed = computed_.find({index, i});
      if (computed == computed_.end()) continue;
      lie[i] = query.inputs[i].dtype;
      query.inputs[i].dtype = computed->second;
    }
    const std::string text = printed(query, kernel, lie);
    std::string operands;
    const auto add = [&](const plan::View& view, const char* qualifier) {
      operands += (operands.empty() ? "" : ", ") + (plan::is_absent(view) ? "0" : pointer(view, qualifier));
    };
    for (const plan::View& view : kernel.inputs) add(view, "const ");
    for (const plan::View& view : kernel.outputs) add(view, "");
    const auto [it, added] = names_.try_emplace(text, fmt::format("k{}_{}", names_.size(), c_name(kernel.op)));
    if (added) functions_ += fmt::format("\nstatic int {}{}", it->second, text);
    ++calls_;
    return fmt::format("  if ((error = {}({})) != 0) return error; /* {} */\n", it->second, operands,
                       comment(kernel.name));
  }

  // What cannot be printed is said with the user's line.
  std::string printed(const plan::KernelQuery& query, const plan::Kernel& kernel, const std::map<size_t, DType>& lie) {
    try {
      return function_text(query, shared_, lie);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUnsupported) throw;
      const std::string line = kernel.source.known() ? fmt::format("  ({})", kernel.source.str()) : "";
      fail(ErrorKind::kUnsupported, "plan '{}' as C: '{}': {}{}", plan_.name, kernel.name, error.what(), line);
    }
  }

  // Which of its results depend on more than IEEE 754's arithmetic.
  std::string bits() const {
    if (shared_.inexact().empty()) return "Its results have the same bits on every machine.";
    std::string names;
    for (const std::string& name : shared_.inexact()) names += (names.empty() ? "" : ", ") + name;
    return fmt::format("The last bits of its results are those of the C library's {}.", names);
  }

  // Words before each array, for linkers: a microcontroller may have memories of several kinds.
  std::string places() const {
    std::string text =
        "/* Where arrays lie, if the compiler is to say it: attributes of variables, of all of a kind or of one. */\n";
    for (const char* const place : {"CONSTANT", "STATE", "MEMORY"})
      text += fmt::format("#ifndef {0}_{1}\n#define {0}_{1}\n#endif\n", upper_, place);
    return text;
  }

  // An array of the widest type lies at its alignment.
  std::string memory(const Contents& contents) const {
    std::string text;
    if (block_.bytes > 0)
      text =
          fmt::format("static u64 {}_MEMORY words[{}];\nstatic unsigned char* const memory = (unsigned char*)words;\n",
                      upper_, block_.bytes / sizeof(uint64_t));
    for (size_t v = 0; v < plan_.variables.size(); ++v)
      text += variable_text(plan_, v, written_[v], contents, upper_, sections_);
    return text;
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

  std::string header(const PlanSource& made) const {
    std::string text = fmt::format(
        "/* Plan \"{0}\", written by sluice-compile: {1} bytes of memory beside its weights.\n"
        "   Write all inputs, run, read the results; one step at a time. */\n"
        "#ifndef {2}_H\n#define {2}_H\n#include <stdint.h>\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n"
        "/* Bytes: of values of a step, of variables that steps change, and of those that stay. */\n"
        "#define {2}_MEMORY_BYTES {1}\n#define {2}_STATE_BYTES {3}\n#define {2}_CONSTANT_BYTES {4}\n\n",
        comment(plan_.name), made.memory, upper_, made.state, made.constants);
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

  plan::Plan plan_;
  std::map<std::pair<int, size_t>, DType> computed_;  // CastsRead
  const std::string& name_;
  const Contents& contents_;
  const Sections& sections_;
  std::vector<bool> written_;  // variables
  std::string upper_;          // the name as that of a macro
  Block block_;
  Shared shared_;
  std::map<std::string, std::string> names_;  // of functions, by what follows the name
  std::string functions_;
  int calls_ = 0;
};

}  // namespace

PlanSource plan_source(const plan::Plan& plan, const std::string& name, const Contents& contents,
                       const Sections& sections) {
  return Writer(plan, name, contents, sections).write();
}

std::string c_name(const std::string& text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "_" + name : name;
}

}  // namespace sluice::c
