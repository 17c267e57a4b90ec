#pragma once
// Foreign backends: libraries outside of Sluice that compute parts of graphs, by the C interface
// include/sluice/offload.h.
//
// A library is loaded by who names it, in an option or on a command line. A plan that names a backend never loads one:
// a file from elsewhere must not choose which code runs.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/attr.h"
#include "base/tensor_spec.h"

struct sluice_offload_backend;

namespace sluice::plan {

// Calls of ops, all with types, and the types of what they read.
struct ForeignCluster {
  const AttrGraph& body;
  const std::vector<TensorType>& inputs;
  const std::vector<std::string>& options;  // "precision=fp16"
  int threads = 0;
  // Per input: its contents, if they stay as they are, else null; empty: none stay. REQUIRES: has_onnx_type() of each.
  std::vector<const void*> constants = {};
  std::string model = {};  // with constants: what ForeignBackend::model_without() gave
};

// Compiled code of a backend. Thread-safe.
class ForeignCode {
 public:
  ForeignCode(const sluice_offload_backend& backend, std::string where, void* handle);
  ~ForeignCode();
  ForeignCode(const ForeignCode&) = delete;
  ForeignCode& operator=(const ForeignCode&) = delete;
  // Throws kRuntime naming the backend when it fails.
  void run(const void* const* inputs, void* const* outputs) const;

 private:
  const sluice_offload_backend& backend_;
  const std::string where_;
  void* const handle_;
};

// A loaded library. Thread-safe, and there until the process ends.
class ForeignBackend {
 public:
  ForeignBackend(const sluice_offload_backend& backend, std::string path);
  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }
  // Whether it wants the contents of inputs that stay as they are.
  bool wants_constants() const;
  // The model of ONNX of a cluster without inputs that are to be constants, which compile() adds; "" for a backend that
  // is given none. It calls ops, so it is written where kernels are prepared, not where they run. Throws Error where
  // there is no such form.
  std::string model_without(const ForeignCluster& cluster, const std::vector<bool>& constants) const;
  // Why it does not take a cluster of one call; "": it does. Throws kRuntime where the backend throws.
  std::string refusal(const ForeignCluster& one) const;
  // Null, with the reason, where the backend cannot. Throws kRuntime where it breaks the contract: where it throws,
  // gives no handle, or has outputs of other types.
  std::unique_ptr<ForeignCode> compile(const ForeignCluster& cluster, std::string& reason) const;

 private:
  const sluice_offload_backend& backend_;
  const std::string path_, name_, version_;
};

// Loads the library that `given` names: a path where it has a '/' or ends in ".so", else libsluice_<given>.so in one of
// the folders of $SLUICE_BACKENDS, or beside Sluice's own. Loading it again gives the same. Throws kIo where there is
// no such library, naming for the backends that Sluice knows by name what is missing, and kValue for one that is no
// backend.
const ForeignBackend& load_foreign(const std::string& given);
// Is it for load_foreign(): a name, or a library that exports sluice_offload()? Others may be a device's.
bool is_foreign(const std::string& given);
// That of load_foreign() with the same text, or by the backend's own name, if it was loaded; else null.
const ForeignBackend* find_foreign(const std::string& given);
// Adds one that the program has linked, as if it had been loaded from `path`. REQUIRES: it lives until the process
// ends.
const ForeignBackend& add_foreign(const sluice_offload_backend& backend, const std::string& path);
// Another number after each library that was loaded.
uint64_t foreign_generation();

// Writes a cluster as a model of ONNX, in which inputs that are `constants` (empty: none are) are read but not
// declared. Throws Error where it has no such form.
using OnnxWriter = std::function<std::string(const AttrGraph& body, const std::vector<TensorType>& inputs,
                                             const std::vector<bool>& constants)>;
// A part of the program that can write ONNX says so once, at its start.
void set_onnx_writer(OnnxWriter writer);

}  // namespace sluice::plan
