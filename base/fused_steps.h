#pragma once
// What op "fused" computes: elementwise ops one after the other, as text in its attribute `steps`.
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

inline constexpr int kMostFusedInputs = 12;  // of a chain that the compiler makes

// One op of the chain.
struct FusedStep {
  std::string op;
  std::string mode = {};      // the value of the op's param, when it has one: of a string or, as its name, of a dtype
  std::vector<int> operands;  // below the number of inputs: that input; else the result of a step before this one
  bool operator==(const FusedStep&) const = default;
};

// "mul 0 1; gelu:tanh 2; cast:float16 3", for two inputs. The last step's result is the output.
std::string fused_text(const std::vector<FusedStep>& steps);
// Reads that. Throws kValue for anything else, and for a step that uses what comes after it.
std::vector<FusedStep> parse_fused(std::string_view text, int num_inputs);

}  // namespace sluice
