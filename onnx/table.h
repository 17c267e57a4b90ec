#pragma once
// The ops of ONNX: one entry each, in the families' lists.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/call.h"

namespace sluice::onnx {

struct Entry {
  const char* op;  // "Conv", or "ai.onnx.preview.training:Adam"
  std::function<Items(const Call& call)> handler;
  // Inputs whose values are read while a graph is made, by bit. Weights that only such inputs read are constants.
  uint32_t known = 0;
};
using Entries = std::vector<Entry>;

inline constexpr int64_t kOldestOpset = 7, kNewestOpset = 28;

// The entry; null where there is none.
const Entry* find_entry(const std::string& domain, const std::string& op);
// Names of all entries, in order.
std::vector<std::string> all_entries();

Entries elementwise_entries();
Entries reduction_entries();
Entries shape_entries();
Entries indexing_entries();
Entries network_entries();
Entries pooling_entries();
Entries normalization_entries();
Entries attention_entries();
Entries recurrent_entries();
Entries quantization_entries();
Entries loss_entries();
Entries image_entries();
Entries signal_entries();
Entries control_entries();
Entries sequence_entries();
Entries creation_entries();
Entries training_entries();

// A function of Sluice by torch's name ("topk", "nn.functional.fold"), for those that have no name in C++. Arguments
// are positional; NoAttr stands for a parameter's default.
FormResult torch_function(const char* name, std::vector<FormArg> args);
template <class... A>
Value torch1(const char* name, A&&... args) {
  return std::get<Value>(torch_function(name, {FormArg(std::forward<A>(args))...}));
}
template <class... A>
std::vector<Value> torch_all(const char* name, A&&... args) {
  return std::get<std::vector<Value>>(torch_function(name, {FormArg(std::forward<A>(args))...}));
}

}  // namespace sluice::onnx
