#pragma once
// Ensembles are compiled: the graphs of their steps become one, and one plan runs it.
#include <string>

#include "serving/core/executor.h"

namespace sluice::serving {

// Writes the bundle of an ensemble to `to`. All its steps are plans of fixed sizes, or all are families of the same
// sizes. Throws Error.
void compile_ensemble(api::Engine& engine, const ExecutorSpec& spec, const std::string& to);
// Bytes that it will need, at most: of its steps together.
uint64_t ledger_of_ensemble(const ExecutorSpec& spec, int instances);

}  // namespace sluice::serving
