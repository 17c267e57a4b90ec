#include "kernels/c/project.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/c/memory.h"
#include "kernels/c/printer.h"
#include "kernels/c/project_texts.h"

namespace sluice::c {
namespace {

constexpr size_t kMostNamed = 5;

std::string replaced(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    const std::string mark = "@" + name + "@";
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + value.size()))
      text.replace(at, mark.size(), value);
  }
  return text;
}

// "conv1/conv 4096, conv2/conv 2048": the largest of some kinds.
std::string largest(const PlanSource& made, std::initializer_list<Tensor::Kind> kinds) {
  std::vector<const Tensor*> found;
  for (const Tensor& tensor : made.tensors)
    if (std::find(kinds.begin(), kinds.end(), tensor.kind) != kinds.end()) found.push_back(&tensor);
  std::stable_sort(found.begin(), found.end(), [](const Tensor* a, const Tensor* b) { return a->bytes > b->bytes; });
  std::string text;
  for (size_t i = 0; i < std::min(found.size(), kMostNamed); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", found[i]->name, found[i]->bytes);
  return text;
}

constexpr auto kMemory = Tensor::Kind::kMemory, kState = Tensor::Kind::kState, kConstant = Tensor::Kind::kConstant;

std::string need(const PlanSource& made, bool ram) {
  if (ram)
    return fmt::format("values of a step {}, variables that steps change {}; the largest: {}", made.memory, made.state,
                       largest(made, {kMemory, kState}));
  return fmt::format("weights that stay {}, what others begin with {}; the largest: {}", made.constants, made.state,
                     largest(made, {kState, kConstant}));
}

// Numbers of one element each, of which floats are written by their bits.
const char* bits_type(DType dtype) {
  const uint64_t bytes = dtype_size(dtype);
  return bytes == 1 ? "uint8_t" : bytes == 2 ? "uint16_t" : bytes == 4 ? "uint32_t" : "uint64_t";
}

std::string array(const Port& port, const std::string& name, const std::string& bytes, int64_t steps) {
  const uint64_t size = dtype_size(port.dtype), count = static_cast<uint64_t>(numel(port.shape));
  SLUICE_CHECK(bytes.size() == size * count * static_cast<uint64_t>(steps),
               "vectors: '{}' has {} bytes; {} steps of {}{} have {}", port.name, bytes.size(), steps,
               dtype_name(port.dtype), port.shape.str(), size * count * static_cast<uint64_t>(steps));
  std::string text = fmt::format("static const {} {}[] = {{", bits_type(port.dtype), name);
  for (uint64_t i = 0; i < bytes.size() / size; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * size, size);
    text += fmt::format("{}0x{:0{}x}{},", i % 8 == 0 ? "\n  " : " ", bits, 2 * size, size == 8 ? "u" : "");
  }
  return text + (bytes.empty() ? "0" : "") + "\n};\n";
}

// Arrays, and the two functions of check.c that know the ports.
std::string vectors_header(const PlanSource& made, const Vectors& vectors) {
  std::string text = "/* Steps and what the engine computes for them, by bits. */\n#include <string.h>\n\n";
  std::string give = "static void give(size_t step) {\n  (void)step;\n", compare;
  const auto of = [&](const std::map<std::string, std::string>& values, const Port& port) -> const std::string& {
    const auto found = values.find(port.name);
    SLUICE_CHECK(found != values.end(), "vectors: '{}' has none; give values for every port", port.name);
    return found->second;
  };
  for (const Port& port : made.inputs) {
    const std::string name = "in_" + c_name(port.name);
    text += array(port, name, of(vectors.inputs, port), vectors.steps);
    const int64_t bytes = numel(port.shape) * static_cast<int64_t>(dtype_size(port.dtype));
    give += fmt::format("  memcpy({0}(), {1} + step * {2}, {3});\n", port.function, name, numel(port.shape), bytes);
  }
  for (const Port& port : made.outputs) {
    const std::string name = "out_" + c_name(port.name);
    text += array(port, name, of(vectors.outputs, port), vectors.steps);
    compare += fmt::format(
        "  for (i = 0; i < {0}; ++i) {{\n    {1} got;\n    memcpy(&got, {2}() + i, sizeof(got));\n"
        "    if (got != {3}[step * {0} + i]) return different(step, \"{4}\", i, (uint32_t)got, "
        "(uint32_t){3}[step * {0} + i]);\n  }}\n",
        numel(port.shape), bits_type(port.dtype), port.function, name, c_name(port.name));
  }
  return text + fmt::format(
                    "\n{}}}\n\nstatic int compare(size_t step) {{\n  size_t i = 0;\n  (void)i;\n  (void)step;\n{}"
                    "  return 0;\n}}\n#define STEPS {}\n",
                    give, compare, vectors.steps);
}

uint64_t bytes_of_port(const Port& port) { return static_cast<uint64_t>(numel(port.shape)) * dtype_size(port.dtype); }

// Conditions of C that hold where all ports were read, or written. A plan without inputs has no end of its steps.
std::string reads_of(const PlanSource& made) {
  std::string text;
  for (const Port& port : made.inputs)
    text += fmt::format("{}get({}(), {}, &read)", text.empty() ? "" : " && ", port.function, bytes_of_port(port));
  return text.empty() ? "step == 0" : text;
}
std::string writes_of(const PlanSource& made) {
  std::string text;
  for (const Port& port : made.outputs)
    text += fmt::format("{}put({}(), {})", text.empty() ? "" : " && ", port.function, bytes_of_port(port));
  return text.empty() ? "1" : text;
}
uint64_t input_bytes(const PlanSource& made) {
  uint64_t bytes = 0;
  for (const Port& port : made.inputs) bytes += bytes_of_port(port);
  return bytes;
}

std::string table(const PlanSource& made) {
  std::string text = "| tensor | bytes | where |\n|---|---:|---|\n";
  for (const Tensor& tensor : made.tensors) {
    const std::string where = tensor.kind == kMemory ? fmt::format("RAM, at {} of the step's memory", tensor.offset)
                              : tensor.in_ram()      ? "RAM, and in flash what it begins with"
                                                     : "flash";
    text += fmt::format("| `{}` | {} | {}{} |\n", tensor.name, tensor.bytes, where,
                        tensor.section.empty() ? "" : fmt::format(", section `{}`", tensor.section));
  }
  return text;
}

}  // namespace

void check_fits(const PlanSource& made, const Machine& machine) {
  const auto check = [&](const char* memory, uint64_t needed, uint64_t there, bool ram) {
    SLUICE_CHECK_KIND(kMemory, needed <= there, "'{}' as C: {} of {} bytes: {} bytes too few, without any code: {}",
                      made.name, memory, there, needed - there, need(made, ram));
  };
  uint64_t moved = 0;  // constants that are to lie in RAM
  for (const Tensor& tensor : made.tensors)
    if (tensor.kind == kConstant && tensor.in_ram()) moved += tensor.bytes;
  check("RAM", made.memory + made.state + moved + machine.stack, machine.ram, true);
  check("flash", made.constants + made.state, machine.flash, false);
}

std::map<std::string, std::string> project_files(const PlanSource& made, const Machine& machine,
                                                 const Vectors& vectors) {
  const auto quoted = [](std::string text) {
    std::erase(text, '"');
    return text;
  };
  const std::map<std::string, std::string> values = {
      {"NAME", made.name},
      {"FLASH", std::to_string(machine.flash)},
      {"RAM", std::to_string(machine.ram)},
      {"STACK", std::to_string(machine.stack)},
      {"NEEDS_RAM", quoted(need(made, true))},
      {"NEEDS_FLASH", quoted(need(made, false))},
      {"MEMORY", std::to_string(made.memory)},
      {"STATE", std::to_string(made.state)},
      {"CONSTANTS", std::to_string(made.constants)},
      {"TENSORS", table(made)},
      {"READS", reads_of(made)},
      {"WRITES", writes_of(made)},
      {"INPUT_BYTES", std::to_string(input_bytes(made))},
      {"VECTORS", vectors.steps > 0 ? fmt::format("{} steps are known (`vectors.h`)", vectors.steps)
                                    : "No steps are known, so that it runs one on zeros alone"}};
  std::map<std::string, std::string> files = {{made.name + ".c", made.source}, {made.name + ".h", made.header}};
  files["machine.c"] = kMachineSource;
  for (const auto& [name, text] : {std::pair{"check.c", kCheckSource},
                                   {"run.c", kRunSource},
                                   {"memory.ld", kLinkerScript},
                                   {"Makefile", kMakefile},
                                   {"README.md", kReadme}})
    files[name] = replaced(text, values);
  files["vectors.h"] = vectors_header(made, vectors);
  return files;
}

}  // namespace sluice::c
