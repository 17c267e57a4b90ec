#pragma once
// A plan as one C99 file and its header: static memory, and a function that runs a step. Nothing is allocated, and
// nothing but <math.h> is called.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace sluice::c {

// kMemory: of a step, which lies at `offset` of a block that others share at other times. kState: a variable that steps
// change. kConstant: one that stays.
struct Tensor {
  enum class Kind : uint8_t { kMemory, kState, kConstant };
  std::string name;
  Kind kind = Kind::kMemory;
  uint64_t bytes = 0, offset = 0;
  std::string section = {};  // of the linker, in which the array of a variable is to lie; "": that of its kind
  bool in_ram() const { return kind != Kind::kConstant || section.starts_with(".data"); }
};

// Sections of variables, by the first pattern that a name matches, with * for any text.
using Sections = std::vector<std::pair<std::string, std::string>>;

// An input or output, which `function` gives.
struct Port {
  std::string name, function;
  DType dtype = DType::kFloat32;
  Shape shape;
};

struct PlanSource {
  std::string name;  // what names begin with
  std::string source, header;
  uint64_t memory = 0, state = 0, constants = 0;  // bytes: of the block, and of all variables of a kind
  std::vector<Tensor> tensors = {};
  std::vector<Port> inputs = {}, outputs = {};
};

// The contents of a variable, contiguous; null: it has none, and begins with zeros.
using Contents = std::function<const void*(const std::string& variable)>;

// Prints a plan of one device c:0 (kernels/c/target.h) with one step in flight. `name` is what every name in the header
// begins with: a name in C. Throws kValue where it is none, or where a pattern of `sections` matches no variable,
// kUnsupported for a plan that does not run in one fixed order once a step.
PlanSource plan_source(const plan::Plan& plan, const std::string& name, const Contents& contents,
                       const Sections& sections = {});

// A name in C that is like `text`.
std::string c_name(const std::string& text);

}  // namespace sluice::c
