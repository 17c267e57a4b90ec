#pragma once
// The options of the compiler. compiler/options.inc is the table of them, from which everything else here is made.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/attr.h"
#include "base/device.h"
#include "base/device_mesh.h"
#include "base/key.h"
#include "base/option.h"
#include "graph/graph.h"
#include "plan/time/machine.h"

namespace sluice {

enum class Granularity { kProgram, kOp };
std::string str_of(Granularity granularity);  // "program" or "op"

// What a graph is to compute instead of something that it may contain, both as graphs of one result. The inputs of
// `after` are those of `before`, one by one. Shapes may differ from theirs where attributes do not name them; dtypes,
// ops and attributes are as they stand there. Variables are constants, whose contents are given by name.
struct Pattern {
  using Contents = std::map<std::string, std::vector<std::byte>>;
  std::string name;
  graph::Graph before, after;
  Contents before_constants = {}, after_constants = {};
};

using NumberByName = std::map<std::string, int>;
using PlacementByName = std::map<std::string, GlobalPlacement>;

struct CompileOptions {
#define OPTION(type, name, initial, ...) type name = initial;
#include "compiler/options.inc"
};

// Calls visit(facts, &CompileOptions::name) for each option, in the order of the table.
template <class Visit>
void each_compile_option(Visit&& visit) {
#define OPTION(type, option, initial, ...) visit(OptionFacts{.name = #option, __VA_ARGS__}, &CompileOptions::option);
#include "compiler/options.inc"
}

// Throws the first error.
void check_options(const CompileOptions& options);
// What differs from the defaults, so that a plan says what was asked for and no more.
NamedAttrs recorded_options(const CompileOptions& options);
// Adds all of them: options that differ give keys that differ.
void add_options(Key& key, const CompileOptions& options);

}  // namespace sluice
