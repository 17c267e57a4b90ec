#pragma once
// Graphs as models of ONNX.
//
// An op has an entry, or is decomposed until what it is made of has one. Sizes that vary are found by tracing at
// several sizes: what differs between the traces is a polynomial of the dims, with a term for each set of them, or is
// refused.
#include <map>
#include <string>
#include <vector>

#include "tensor/trace.h"

namespace sluice::onnx {

struct ExportOptions {
  int64_t opset = 0;  // 0: the lowest from 17 on that the ops need
  std::string producer_version = {};
  std::string prefix = {};  // of names of modules and weights, which is left out
  // Names of the dims that vary, and their sizes in each trace.
  std::vector<std::string> dims = {};
  std::vector<std::vector<int64_t>> sizes = {};
  // By input: names of dims, by axis.
  std::map<std::string, std::map<int, std::string>> axes = {};
  // Whether branches become nodes "If", of which a step computes one; else all of them are computed, and one is chosen.
  bool branches = true;
};

// How many traces `dims` need, and the sizes of each: two of every dim in all combinations, and one to test the fit.
std::vector<std::vector<int64_t>> sizes_to_trace(size_t dims);

// Writes traces of one program, of which the first has the weights, to `path`; with `external`, weights to path +
// ".data". Returns the opset. Throws kUnsupported where an op has no form in ONNX, where a step trains or draws random
// numbers, and where a size is not such a polynomial: naming module and line.
int64_t export_model(const std::vector<const CapturedGraph*>& traces, const ExportOptions& options,
                     const std::string& path, bool external);

// A cluster of ops for a foreign backend as a model: inputs i0, i1, ..., outputs o0, o1, .... Those that are
// `constants` (empty: none) are read and not declared, so that initializers of their names can be added. Throws as
// export_model().
std::string cluster_model(const AttrGraph& body, const std::vector<TensorType>& inputs,
                          const std::vector<bool>& constants = {});

}  // namespace sluice::onnx
