#pragma once
// A plan family: plans of one graph for several extents of named dims. Plain data, and which members run a call.
//
// A call's inputs say how long each dim is (extents_of). The smallest member that fits runs it (parts_of): filled up
// with zeros, or cut into several calls, as the dims' rules allow. Results are cut where an axis is as long as a dim.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/tensor_spec.h"
#include "plan/extents.h"
#include "plan/plan.h"

namespace sluice::plan {

// Says how a call is run whose extent no member has. kPad: fills up the inputs with zeros and cuts the results; kSplit:
// several calls of members, whose results are joined; kExact: refuses it.
enum class Fit : uint8_t { kPad, kSplit, kExact };
const char* fit_name(Fit fit);  // "pad", "split", "exact"
Fit parse_fit(const std::string& name);

struct Dim {
  std::string name;
  int64_t min = 1, max = 1;  // of calls
  Fit fit = Fit::kPad;
  bool operator==(const Dim&) const = default;
};

using Extents = std::vector<int64_t>;  // one per dim

// An axis of an input or output is of a fixed size, or as long as a dim. kOther: of an output; its size differs between
// members in another way.
struct FamilyAxis {
  static constexpr int kFixed = -1, kOther = -2;
  int dim = kFixed;
  int64_t size = 0;  // of a fixed axis
  bool operator==(const FamilyAxis&) const = default;
};

struct FamilyPort {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<FamilyAxis> axes;
  // REQUIRES: no axis is kOther.
  Shape shape(const Extents& extents) const;
  bool operator==(const FamilyPort&) const = default;
};

struct Family {
  std::string name;
  std::vector<Dim> dims;
  std::vector<FamilyPort> inputs, outputs;
  std::vector<Extents> members;
  bool operator==(const Family&) const = default;
};

inline constexpr int kMostMembers = 1024;

// Powers of two from the first that is at least `min`, and `max`.
Extents powers_of_two(int64_t min, int64_t max);
// Throws kValue naming the dim: an empty range, buckets that are out of it, that do not ascend, or end below its max.
void check_dim(const Dim& dim, const Extents& buckets);
// Every choice of one bucket per dim. Throws kValue for more than kMostMembers.
std::vector<Extents> all_extents(const std::vector<Extents>& buckets);

// Extents for which a graph has to be looked at beside those of its members, to tell which axes of its outputs are as
// long as a dim: nobody can tell where all members have one extent of it.
std::vector<Extents> probes_of(const std::vector<Dim>& dims, const std::vector<Extents>& members);
// Infers the outputs of a family from their names and types for each of `extents`. Throws kValue where ranks or dtypes
// differ.
std::vector<FamilyPort> outputs_of(const Family& family, const std::vector<Extents>& extents,
                                   const std::vector<std::vector<NamedType>>& types);

// Plans of one graph for certain shapes, given their inputs and outputs: axes that differ from plan to plan are of
// dims, which are exact and called "<input>.<axis>"; axes that always are equally long are of one. Throws kValue where
// names, dtypes or ranks differ, or two plans are for the same shapes.
Family exact_family(const std::string& name, const std::vector<std::vector<NamedType>>& inputs,
                    const std::vector<std::vector<NamedType>>& outputs);

// Throws kValue for what is no family: dims, ports or members that contradict each other, and outputs that cannot be
// cut where the dims ask for it.
void check_family(const Family& family);
// Throws when these are not the inputs and outputs of a member.
void check_member(const Family& family, size_t member, const std::vector<NamedType>& inputs,
                  const std::vector<NamedType>& outputs);
// Throws when the plan updates variables although not every dim is exact: padding would change the updates, and
// splitting make several of one.
void check_updates(const Family& family, const Plan& plan);

// How long each dim is in a call with inputs of these shapes. Throws kValue naming the input, the axis and the dim.
Extents extents_of(const Family& family, std::span<const Shape> inputs);

// One call of a member: the rows [start, start + extents) of each dim, filled up to the member's extents.
struct Part {
  int member = 0;
  Extents start, extents;
  bool operator==(const Part&) const = default;
};
// The fewest rows of padding, then the fewest calls. REQUIRES: `extents` are of extents_of(). Throws kValue where a dim
// is exact and no member has its extent.
std::vector<Part> parts_of(const Family& family, const Extents& extents);

// The bytes that all members together need. Variables are shared, by name, and so are packed copies of them, by format;
// constants, with theirs, are each member's own. With shared arenas, a space has those of the member that needs most
// there, or what `held` says, beside the arenas with state.
struct FamilyLedger {
  uint64_t arenas = 0, variables = 0, constants = 0, packed = 0, total = 0;
  uint64_t shared = 0;  // of the total: what sessions of one engine hold once
  std::map<std::string, uint64_t> spaces;
};
FamilyLedger family_ledger(std::span<const Plan* const> members, bool shared_arenas,
                           const std::map<std::string, uint64_t>& held = {});

// The JSON form: {"schema_version": 1, "name": "g", "dims": [{"name": "batch", "min": 1, "max": 32, "fit": "pad"}],
// "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 8]}], "outputs": [...], "members": [[1], [32]]}.
// An axis is its size, the name of its dim, or null for kOther.
std::string family_json(const Family& family);
// Reads strictly, and checks the family. Throws kValue "<file>: <field>: <what>".
Family parse_family(const std::string& text, const std::string& file_name);

}  // namespace sluice::plan
