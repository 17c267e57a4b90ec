#pragma once
// Plans that were compiled before, by this process or another. The key of a plan is all that it depends on: the graph,
// the options, what kernels are known to take, the contents of constants, the target, the processor, and the build of
// Sluice. So what is found is the plan that compile() would make, byte for byte.
//
// A plan that is read is held against the graph and verified as a plan from any file, and its kernels are asked whether
// they are content with it here; a plan that does not pass is compiled anew.
#include <string>

#include "base/files/file_cache.h"
#include "compiler/compiler.h"

namespace sluice {

class PlanCache {
 public:
  enum class Use : uint8_t {
    kRead,
    kCheck,  // compiles nevertheless, and throws kRuntime where the plan found is another one
  };
  // REQUIRES: the ops outlive it.
  PlanCache(std::string directory, uint64_t most_bytes, Use use, const OpRegistry& ops)
      : files_(std::move(directory), most_bytes), use_(use), ops_(ops) {}

  FileCache& files() { return files_; }
  // Compiles as sluice::compile() does, whose errors it throws. Not kept are graphs over several devices, graphs with
  // ops or devices that do not come with Sluice, whose builds it cannot tell apart, and what is dumped while it is
  // compiled.
  CompileResult compile(graph::Graph graph, const plan::Target& target, const CompileOptions& options,
                        const ConstantLookup& constants, const ConstantEvaluator& evaluate);

 private:
  FileCache files_;
  const Use use_;
  const OpRegistry& ops_;
};

}  // namespace sluice
