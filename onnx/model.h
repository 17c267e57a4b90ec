#pragma once
// A model of ONNX as a function of tensors.
//
// Thread safety: immutable once it is made; run() may be called from several threads, which trace or compute as eager
// calls do.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx/call.h"

namespace sluice::onnx {

struct Port {
  std::string name;
  std::string kind = "tensor";  // or "sequence", "optional"
  std::optional<DType> dtype;   // of tensors
  // A size of each axis: a number, a name, or "" for one that is not said. Unset: the rank is not said, either.
  std::optional<std::vector<std::string>> dims;
};

class Model {
 public:
  // Throws kValue or kUnsupported, naming file and node, where the model is malformed or has what Sluice has not.
  static Model load(const std::string& path);
  static Model parse(std::string_view bytes, const std::string& folder = "");
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;
  // Weights by name, in the file's order: floating tensors that ops compute with.
  const std::vector<std::pair<std::string, Tensor>>& parameters() const;
  std::map<std::string, std::string> metadata() const;
  std::map<std::string, int64_t> opsets() const;
  std::string name() const;

  // `parameters` in the order of parameters(). An input of nothing has its initializer, or is an absent optional.
  std::vector<Item> run(std::span<const Item> inputs, std::span<const Value> parameters, Generator& generator) const;

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  friend class Runner;
};

}  // namespace sluice::onnx
