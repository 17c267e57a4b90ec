#pragma once
// Reads the inputs and outputs of the command line: "[NAME=]VALUE", by name or in the plan's order.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "include/sluice/plan.h"
#include "include/sluice/tensor.h"

namespace sluice::run {

// The values of --input, --fill, --seed and --dim.
struct InputArguments {
  std::vector<std::string> inputs;
  std::vector<std::string> dims;  // "NAME=SIZE"
  std::string fill;               // of inputs that are not given: "", "zeros", "random"
  uint64_t seed = 0;
};

// A tensor per port. VALUE is "@FILE.npy", "zeros", "random", or numbers: one for all elements, or one for each.
// Numbers and fills of an axis of a dim have the size that `dims` says, or else the largest. Throws kValue naming the
// input.
std::vector<api::Tensor> make_inputs(const std::vector<api::Port>& ports, const InputArguments& arguments);

// The texts by the number of their port. `option`: for errors. Throws kValue for a name or number that is no port's.
std::map<size_t, std::string> by_port(const std::vector<api::Port>& ports, const std::vector<std::string>& texts,
                                      const char* option);
// The file of "@FILE" or of "FILE".
std::string file_of(const std::string& text);

// "y: float32(2, 2)" and below it the elements in rows; of large tensors the first and last of each axis.
std::string show(const std::string& name, const api::Tensor& tensor);
// "" where a and b have equal types, and |a - b| <= tolerance * (1 + |b|) for all elements, or both are NaN; else the
// first place where they differ, and how many do.
std::string difference(const api::Tensor& a, const api::Tensor& b, double tolerance);

}  // namespace sluice::run
