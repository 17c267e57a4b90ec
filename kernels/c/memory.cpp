#include "kernels/c/memory.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/c/printer.h"
#include "kernels/c/target.h"
#include "plan/pack/packing.h"

namespace sluice::c {
namespace {

class Lives {
 public:
  explicit Lives(const plan::Plan& plan) : plan_(plan), lives_(plan.buffers.size()) {
    int64_t now = 1;
    for (const int actor : plan.certificate)
      for (const plan::Instr& instr : plan.actors[static_cast<size_t>(actor)].program) {
        if (instr.kind != plan::InstrKind::kRun) continue;
        const plan::Kernel& kernel = plan.kernels[static_cast<size_t>(instr.index)];
        for (const plan::View& view : kernel.inputs) touch(view, now, now + 1);
        for (const plan::View& view : kernel.outputs) touch(view, now, now + 1);
        ++now;
      }
    // Results are read after the step, and the next one's inputs are written then.
    for (const plan::Input& input : plan.inputs)
      live(plan.registers[static_cast<size_t>(input.reg)].slots.at(0), 0, now + 1);
    for (const plan::Output& output : plan.outputs) touch(output.view, now, now + 1);
  }
  const std::vector<plan::Interval>& all() const { return lives_; }

 private:
  void touch(const plan::View& view, int64_t begin, int64_t end) {
    if (view.base == plan::BaseKind::kVariable || plan::is_absent(view)) return;
    const int buffer = view.base == plan::BaseKind::kBuffer
                           ? view.index
                           : plan_.registers[static_cast<size_t>(view.index)].slots.at(0);
    live(buffer, begin, end);
  }
  void live(int buffer, int64_t begin, int64_t end) {
    plan::Interval& life = lives_[static_cast<size_t>(buffer)];
    if (life.bytes == 0) life = {begin, end, plan_.buffers[static_cast<size_t>(buffer)].bytes};
    life.begin = std::min(life.begin, begin);
    life.end = std::max(life.end, end);
  }

  const plan::Plan& plan_;
  std::vector<plan::Interval> lives_;  // without bytes: no kernel touches it
};

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

// "": none is given.
std::string section_of(const std::string& variable, const Sections& sections) {
  for (const auto& [pattern, section] : sections)
    if (fnmatch(pattern.c_str(), variable.c_str(), 0) == 0) return section;
  return "";
}

void check_sections(const plan::Plan& plan, const Sections& sections) {
  for (const auto& [pattern, section] : sections) {
    const bool found = std::any_of(plan.variables.begin(), plan.variables.end(), [&](const plan::Variable& variable) {
      return fnmatch(pattern.c_str(), variable.name.c_str(), 0) == 0;
    });
    std::string names;
    for (const plan::Variable& variable : plan.variables) names += (names.empty() ? "" : ", ") + variable.name;
    SLUICE_CHECK(found, "plan '{}' as C: sections: '{}': no such variable; the plan has {}", plan.name, pattern, names);
    const bool plain = !section.empty() && section.find_first_of("\"\\ \n") == std::string::npos;
    SLUICE_CHECK(plain, "plan '{}' as C: sections: \"{}\" of '{}': is none; must be a name as .data.fast", plan.name,
                 section, pattern);
  }
}

bool all_zero(const void* data, uint64_t bytes) {
  const auto* const at = static_cast<const unsigned char*>(data);
  return std::all_of(at, at + bytes, [](unsigned char byte) { return byte == 0; });
}

}  // namespace

Block lay_out(const plan::Plan& plan) {
  const Lives lives(plan);
  const plan::Packing packing = plan::pack(lives.all(), kAlignment, true);
  const std::string fault = plan::packing_fault(lives.all(), packing, kAlignment);
  SLUICE_CHECK_KIND(kRuntime, fault.empty(), "plan '{}' as C: its memory: {}; must be apart", plan.name, fault);
  return {packing.offsets, packing.bytes};
}

std::vector<Tensor> tensors_of(const plan::Plan& plan, const Block& block, const Sections& sections) {
  check_sections(plan, sections);
  std::vector<Tensor> tensors;
  const Lives lives(plan);
  for (size_t b = 0; b < plan.buffers.size(); ++b)
    if (lives.all()[b].bytes > 0)
      tensors.push_back({plan.buffers[b].name, Tensor::Kind::kMemory, plan.buffers[b].bytes, block.offsets[b]});
  const auto larger = [](const Tensor& a, const Tensor& b) { return a.bytes > b.bytes; };
  std::stable_sort(tensors.begin(), tensors.end(), larger);
  const size_t values = tensors.size();
  const std::vector<bool> written = plan::written_variables(plan);
  for (size_t v = 0; v < plan.variables.size(); ++v)
    tensors.push_back({plan.variables[v].name, written[v] ? Tensor::Kind::kState : Tensor::Kind::kConstant,
                       plan.variables[v].spec.extent_bytes(), 0, section_of(plan.variables[v].name, sections)});
  std::stable_sort(tensors.begin() + static_cast<std::ptrdiff_t>(values), tensors.end(), larger);
  return tensors;
}

std::string variable_name(const plan::Plan& plan, size_t index) {
  return fmt::format("v{}_{}", index, c_name(plan.variables[index].name));
}

std::string variable_text(const plan::Plan& plan, size_t index, bool changes, const Contents& contents,
                          const std::string& name, const Sections& sections) {
  const plan::Variable& v = plan.variables[index];
  const int64_t count = numel(v.spec.shape);
  const void* const data = contents(v.name);
  SLUICE_CHECK(is_contiguous(v.spec.shape, v.spec.strides),
               "plan '{}' as C: variable '{}' has strides {}; must be contiguous", plan.name, v.name,
               v.spec.strides.str());
  SLUICE_CHECK(data != nullptr || count == 0,
               "plan '{}' as C: variable '{}' has no contents; give a bundle with its weights", plan.name, v.name);
  const std::string own = variable_name(plan, index), section = section_of(v.name, sections);
  const std::string place = section.empty() ? fmt::format("{}_{}", name, changes ? "STATE" : "CONSTANT")
                                            : fmt::format("__attribute__((section(\"{}\")))", section);
  std::string text = fmt::format(
      "/* {0}: {1}{2} */\n#ifndef {3}_{4}\n#define {3}_{4} {5}\n#endif\nstatic {6}{7} {3}_{4} {4}[{8}] = {{",
      comment(v.name), dtype_name(v.spec.dtype), v.spec.shape.str(), name, own, place, changes ? "" : "const ",
      memory_type(v.spec.dtype), std::max<int64_t>(count, 1));
  if (count == 0 || all_zero(data, v.spec.extent_bytes())) return text + "0};\n";
  for (int64_t i = 0; i < count; ++i) text += (i % 8 == 0 ? "\n  " : " ") + element_text(data, v.spec.dtype, i) + ",";
  return text + "\n};\n";
}

std::string comment(std::string text) {
  for (size_t at = text.find("*/"); at != std::string::npos; at = text.find("*/")) text.replace(at, 2, "* /");
  for (size_t at = text.find("/*"); at != std::string::npos; at = text.find("/*")) text.replace(at, 2, "/ *");
  return text;
}

}  // namespace sluice::c
