#pragma once
// A plan, to look at before it is run.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "export.h"
#include "tensor.h"

namespace sluice::api {

// An input or output, in the plan's order.
struct SLUICE_API Port {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  // The dim of each axis whose size may differ: from call to call, of a plan family, or of an output as a step makes it
  // (its results have their true shapes); "" of the others. The shape has the largest. Empty where no axis may.
  std::vector<std::string> dims = {};
  // For a port of a session: why its memory is copied; "" where it is exchanged (SessionOptions::zero_copy).
  std::string copied = {};
  // For a port of a session: the device in whose memory results lie, and what is handed over may lie: "cpu:0" for the
  // host's, "cuda:0".
  std::string device = {};
  std::string str() const;  // "images: float32(32, 1, 8, 8)"; "images: float32(batch<=32, 1, 8, 8)"
};

// If the bundle is of a plan family, this is all of its plans: inputs and outputs are those of its calls (see
// Port::dims), actors are called "<n>/<name>", bytes that the plans share count once. An empty one, as made by default
// or moved from, throws kValue when asked for anything.
class SLUICE_API Plan {
 public:
  // Reads a plan file, or the plans of a bundle: a directory, or a tar archive of one. Throws kIo, kValue.
  static Plan load(const std::string& path);
  // The same of an archive in memory, which is read and not kept.
  static Plan load(const void* archive, size_t bytes);

  const std::string& name() const;
  std::vector<Port> inputs() const;
  std::vector<Port> outputs() const;
  // A plan family has dims, and for each of its plans the extents that they have in it. A plan alone has no dims, and
  // one member without extents.
  std::vector<std::string> dims() const;
  std::vector<std::vector<int64_t>> members() const;
  std::vector<std::string> actors() const;
  int kernels() const;
  // Every byte that so many sessions of it need in one engine, variables included: what they only read is there once.
  uint64_t memory_bytes(int sessions = 1) const;
  // "" when the plan is right and can run for ever; else every problem, one per line.
  std::string verify() const;

 private:
  friend class SharedArenas;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace sluice::api
