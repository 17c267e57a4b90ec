#pragma once
// Bundles whose plans read files that lie elsewhere on this machine.
#include <string>

#include "base/files/data_roots.h"
#include "runtime/bundle/bundle.h"

namespace sluice {

// load_session() of a bundle whose kernels find their files at `roots`. Throws kValue where there are roots, but no
// kernel that opens files.
Session load_session(Engine& engine, Bundle bundle, const std::string& directory, SessionOptions options,
                     const DataRoots& roots, BoundWeights* bound = nullptr);

}  // namespace sluice
