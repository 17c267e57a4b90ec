#pragma once
// Ops of extensions as op definitions, so that they are called, traced, differentiated and saved as built-in ones are.
#include <memory>
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "include/sluice/extension.h"

namespace sluice {

class EagerExecutor;
struct LoadedExtension;

// Adds every op of `extension` to `ops`, all or none. Throws kValue for a name that is taken. REQUIRES: `ops` outlives
// every use of them.
void add_extension_ops(OpRegistry& ops, const LoadedExtension& extension);
// Throws as add_extension_ops() would, and changes nothing.
void check_extension_ops(const OpRegistry& ops, const LoadedExtension& extension);

// The attributes as ops take them.
NamedAttrs named_attrs(const api::Attributes::Items& items);

// Loads an extension's kernels into the executor's engine and its ops into the executor's registry. Returns the ops.
std::vector<const OpDef*> load_extension(EagerExecutor& eager, const std::string& path);

}  // namespace sluice
