#include "plan/family/family.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "plan/pack/ledger.h"

namespace sluice::plan {
namespace {

std::string list_str(const Extents& values) {
  std::string text;
  for (const int64_t v : values) text += (text.empty() ? "" : ", ") + std::to_string(v);
  return text;
}

// The extents that members have of a dim, ascending.
Extents extents_in(const std::vector<Extents>& members, size_t dim) {
  std::set<int64_t> values;
  for (const Extents& m : members) values.insert(m[dim]);
  return {values.begin(), values.end()};
}

bool varies(const Dim& dim) { return dim.fit != Fit::kExact && dim.min < dim.max; }

double volume(const Extents& extents) {
  double product = 1;
  for (const int64_t e : extents) product *= static_cast<double>(e);
  return product;
}

// The p-th ports of all members have one name, dtype and rank.
void check_alike(const std::string& family, const char* kind, const std::vector<std::vector<NamedType>>& types,
                 size_t p) {
  const NamedType& first = types.front()[p];
  for (const std::vector<NamedType>& of_member : types) {
    SLUICE_CHECK(of_member.size() == types.front().size() && of_member[p].name == first.name &&
                     of_member[p].type.dtype == first.type.dtype &&
                     of_member[p].type.shape.rank() == first.type.shape.rank(),
                 "family '{}': {} '{}' is {} in one member, and {} in another; names, dtypes and ranks must be equal",
                 family, kind, first.name, first.type.str(),
                 p < of_member.size() ? "'" + of_member[p].name + "' " + of_member[p].type.str() : "missing");
  }
}

void check_axes(const Family& family, const FamilyPort& port, const char* kind) {
  SLUICE_CHECK(static_cast<int>(port.axes.size()) <= kMaxRank, "family '{}': {} '{}': {} axes; at most {}", family.name,
               kind, port.name, port.axes.size(), kMaxRank);
  for (size_t a = 0; a < port.axes.size(); ++a) {
    const FamilyAxis& axis = port.axes[a];
    const bool known = axis.dim >= 0 ? axis.dim < static_cast<int>(family.dims.size())
                                     : axis.dim == FamilyAxis::kFixed || kind == std::string("output");
    SLUICE_CHECK(known && axis.size >= 0, "family '{}': {} '{}': axis {} is neither a size nor of a dim", family.name,
                 kind, port.name, a);
  }
}

bool has_axis(const FamilyPort& port, int dim) {
  return std::any_of(port.axes.begin(), port.axes.end(), [&](const FamilyAxis& axis) { return axis.dim == dim; });
}

// Results are cut along the axes of dims that are padded, and joined along those of one that is split.
void check_cuts(const Family& family) {
  // If no dim varies, every call runs a member as it is, and nothing has to be cut or joined.
  bool any = false;
  for (const Dim& dim : family.dims) any = any || varies(dim);
  if (!any) return;
  for (const FamilyPort& output : family.outputs) {
    bool cut = false;
    for (size_t d = 0; d < family.dims.size(); ++d) {
      const Dim& dim = family.dims[d];
      const bool has = has_axis(output, static_cast<int>(d));
      cut = cut || (has && varies(dim));
      SLUICE_CHECK(has || !varies(dim) || dim.fit != Fit::kSplit,
                   "family '{}': output '{}' has no axis of dim '{}', along which the results of its parts could be "
                   "joined; give the dim fit=\"exact\"",
                   family.name, output.name, dim.name);
    }
    SLUICE_CHECK(
        !has_axis(output, FamilyAxis::kOther),
        "family '{}': output '{}' varies otherwise than any dim does, so what padding adds to it cannot be cut "
        "off; give the dims fit=\"exact\"",
        family.name, output.name);
    SLUICE_CHECK(
        cut,
        "family '{}': output '{}' has no axis of a dim that is padded: it mixes rows with those of the padding; "
        "give the dims fit=\"exact\"",
        family.name, output.name);
  }
}

}  // namespace

const char* fit_name(Fit fit) {
  switch (fit) {
    case Fit::kPad: return "pad";
    case Fit::kSplit: return "split";
    case Fit::kExact: return "exact";
  }
  return "?";
}

Fit parse_fit(const std::string& name) {
  for (const Fit fit : {Fit::kPad, Fit::kSplit, Fit::kExact})
    if (name == fit_name(fit)) return fit;
  fail(ErrorKind::kValue, "fit: got '{}'; must be 'pad', 'split' or 'exact'", name);
}

Shape FamilyPort::shape(const Extents& extents) const {
  Shape shape;
  for (const FamilyAxis& axis : axes) shape.push_back(axis.dim >= 0 ? extents[axis.dim] : axis.size);
  return shape;
}

Extents powers_of_two(int64_t min, int64_t max) {
  Extents buckets;
  int64_t power = 1;
  while (power < min && power <= max / 2) power *= 2;
  for (; power >= min && power < max; power *= 2) {
    buckets.push_back(power);
    if (power > max / 2) break;
  }
  buckets.push_back(max);
  return buckets;
}

void check_dim(const Dim& dim, const Extents& buckets) {
  SLUICE_CHECK(!dim.name.empty(), "dim: its name is empty; it must have one");
  SLUICE_CHECK(dim.min >= 1 && dim.max >= dim.min, "dim '{}': {} to {}; must be at least 1, and max at least min",
               dim.name, dim.min, dim.max);
  const bool ascend = std::adjacent_find(buckets.begin(), buckets.end(), std::greater_equal<>()) == buckets.end();
  SLUICE_CHECK(!buckets.empty() && ascend && buckets.front() >= dim.min && buckets.back() == dim.max,
               "dim '{}': buckets [{}]; must ascend from at least {} and end with {}", dim.name, list_str(buckets),
               dim.min, dim.max);
}

std::vector<Extents> all_extents(const std::vector<Extents>& buckets) {
  std::vector<Extents> members = {{}};
  for (const Extents& of_dim : buckets) {
    SLUICE_CHECK(members.size() * of_dim.size() <= kMostMembers,
                 "family: {} x {} members; at most {}: give the dims fewer buckets", members.size(), of_dim.size(),
                 kMostMembers);
    std::vector<Extents> more;
    for (const Extents& member : members) {
      for (const int64_t extent : of_dim) {
        more.push_back(member);
        more.back().push_back(extent);
      }
    }
    members = std::move(more);
  }
  return members;
}

// With a single extent of a dim nobody can tell which axes of outputs follow it: an axis of 8 may be the dim's or
// fixed. A probe is one more set of extents that is traced, and not compiled, to find out.
std::vector<Extents> probes_of(const std::vector<Dim>& dims, const std::vector<Extents>& members) {
  std::vector<Extents> probes;
  for (size_t d = 0; d < dims.size(); ++d) {
    const Extents known = extents_in(members, d);
    if (!varies(dims[d]) || known.size() != 1) continue;
    probes.push_back(members.front());
    probes.back()[d] = known[0] > dims[d].min ? known[0] - 1 : known[0] + 1;
  }
  return probes;
}

std::vector<FamilyPort> outputs_of(const Family& family, const std::vector<Extents>& extents,
                                   const std::vector<std::vector<NamedType>>& types) {
  std::vector<FamilyPort> ports;
  for (size_t o = 0; o < types.front().size(); ++o) {
    const NamedType& first = types.front()[o];
    FamilyPort port{first.name, first.type.dtype, {}};
    check_alike(family.name, "output", types, o);
    for (int a = 0; a < first.type.shape.rank(); ++a) {
      // An axis is fixed if it has one size in all members, and of a dim if it has the dim's extent in all of them.
      const auto is_always = [&](auto size_in) {
        for (size_t m = 0; m < types.size(); ++m)
          if (types[m][o].type.shape[a] != size_in(m)) return false;
        return true;
      };
      FamilyAxis axis{FamilyAxis::kOther, 0};
      if (is_always([&](size_t) { return first.type.shape[a]; })) axis = {FamilyAxis::kFixed, first.type.shape[a]};
      for (size_t d = 0; d < family.dims.size() && axis.dim == FamilyAxis::kOther; ++d)
        if (is_always([&](size_t m) { return extents[m][d]; })) axis.dim = static_cast<int>(d);
      port.axes.push_back(axis);
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

Family exact_family(const std::string& name, const std::vector<std::vector<NamedType>>& inputs,
                    const std::vector<std::vector<NamedType>>& outputs) {
  SLUICE_CHECK(!inputs.empty() && inputs.size() == outputs.size(),
               "family '{}': inputs of {} members and outputs of {}; must be those of at least one", name,
               inputs.size(), outputs.size());
  Family family{name, {}, {}, {}, {}};
  std::vector<Extents> of_dims;  // per dim, in each member
  for (size_t i = 0; i < inputs.front().size(); ++i) {
    const NamedType& first = inputs.front()[i];
    check_alike(name, "input", inputs, i);
    FamilyPort port{first.name, first.type.dtype, {}};
    for (int a = 0; a < first.type.shape.rank(); ++a) {
      Extents sizes;
      for (const std::vector<NamedType>& of_member : inputs) sizes.push_back(of_member[i].type.shape[a]);
      const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
      if (*least == *most) {
        port.axes.push_back({FamilyAxis::kFixed, *least});
        continue;
      }
      const auto known = std::find(of_dims.begin(), of_dims.end(), sizes);
      port.axes.push_back({static_cast<int>(known - of_dims.begin()), 0});
      if (known != of_dims.end()) continue;
      family.dims.push_back({fmt::format("{}.{}", first.name, a), *least, *most, Fit::kExact});
      of_dims.push_back(std::move(sizes));
    }
    family.inputs.push_back(std::move(port));
  }
  for (size_t m = 0; m < inputs.size(); ++m) {
    Extents& member = family.members.emplace_back();
    for (const Extents& dim : of_dims) member.push_back(dim[m]);
  }
  family.outputs = outputs_of(family, family.members, outputs);
  check_family(family);
  return family;
}

void check_family(const Family& family) {
  SLUICE_CHECK(!family.members.empty() && family.members.size() <= kMostMembers,
               "family '{}': {} members; must be 1 to {}", family.name, family.members.size(), kMostMembers);
  std::set<std::string> names;
  int split = 0;
  for (const Dim& dim : family.dims) {
    SLUICE_CHECK(names.insert(dim.name).second, "family '{}': two dims '{}'; names must differ", family.name, dim.name);
    split += dim.fit == Fit::kSplit;
  }
  SLUICE_CHECK(split <= 1, "family '{}': {} dims have fit=\"split\"; at most one may", family.name, split);
  for (const Extents& m : family.members) {
    SLUICE_CHECK(m.size() == family.dims.size(), "family '{}': member ({}): {} extents; there are {} dims", family.name,
                 list_str(m), m.size(), family.dims.size());
    SLUICE_CHECK(std::count(family.members.begin(), family.members.end(), m) == 1,
                 "family '{}': two members ({}); each must differ", family.name, list_str(m));
  }
  for (const FamilyPort& port : family.inputs) check_axes(family, port, "input");
  for (const FamilyPort& port : family.outputs) check_axes(family, port, "output");
  for (size_t d = 0; d < family.dims.size(); ++d) {
    check_dim(family.dims[d], extents_in(family.members, d));
    const bool used = std::any_of(family.inputs.begin(), family.inputs.end(),
                                  [&](const FamilyPort& input) { return has_axis(input, static_cast<int>(d)); });
    SLUICE_CHECK(used, "family '{}': no input has an axis of dim '{}'; nothing would say how long it is", family.name,
                 family.dims[d].name);
  }
  check_cuts(family);
}

void check_member(const Family& family, size_t member, const std::vector<NamedType>& inputs,
                  const std::vector<NamedType>& outputs) {
  const Extents& extents = family.members[member];
  const auto check_ports = [&](const std::vector<FamilyPort>& ports, const std::vector<NamedType>& got,
                               const char* kind) {
    SLUICE_CHECK(got.size() == ports.size(), "family '{}': member ({}): the plan has {} {}s; the family {}",
                 family.name, list_str(extents), got.size(), kind, ports.size());
    for (size_t i = 0; i < ports.size(); ++i) {
      bool same = ports[i].name == got[i].name && ports[i].dtype == got[i].type.dtype &&
                  static_cast<int>(ports[i].axes.size()) == got[i].type.shape.rank();
      for (size_t a = 0; same && a < ports[i].axes.size(); ++a) {
        const FamilyAxis& axis = ports[i].axes[a];
        if (axis.dim == FamilyAxis::kOther) continue;
        same = got[i].type.shape[static_cast<int>(a)] == (axis.dim >= 0 ? extents[axis.dim] : axis.size);
      }
      SLUICE_CHECK(same, "family '{}': member ({}): {} '{}' of the plan is {}; the family says otherwise of '{}'",
                   family.name, list_str(extents), kind, got[i].name, got[i].type.str(), ports[i].name);
    }
  };
  check_ports(family.inputs, inputs, "input");
  check_ports(family.outputs, outputs, "output");
}

void check_updates(const Family& family, const Plan& plan) {
  const auto vary = std::find_if(family.dims.begin(), family.dims.end(), varies);
  if (vary == family.dims.end()) return;
  for (const Kernel& kernel : plan.kernels) {
    for (const View& view : kernel.outputs) {
      SLUICE_CHECK(view.base != BaseKind::kVariable || is_absent(view),
                   "family '{}': its plans update variable '{}'; {} would change what becomes of it: give dim '{}' "
                   "fit=\"exact\"",
                   family.name, plan.variables.at(static_cast<size_t>(view.index)).name,
                   vary->fit == Fit::kPad ? "padding" : "splitting", vary->name);
    }
  }
}

Extents extents_of(const Family& family, std::span<const Shape> inputs) {
  SLUICE_CHECK(inputs.size() == family.inputs.size(), "graph '{}': got {} inputs; it takes {}", family.name,
               inputs.size(), family.inputs.size());
  Extents extents(family.dims.size(), -1);
  std::vector<size_t> said_by(family.dims.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const FamilyPort& port = family.inputs[i];
    SLUICE_CHECK(inputs[i].rank() == static_cast<int>(port.axes.size()),
                 "graph '{}': argument '{}' has shape {}; must have {} axes", family.name, port.name, inputs[i].str(),
                 port.axes.size());
    for (int a = 0; a < inputs[i].rank(); ++a) {
      const FamilyAxis& axis = port.axes[a];
      const int64_t size = inputs[i][a];
      const auto refuse = [&](const std::string& what) {
        fail(ErrorKind::kValue, "graph '{}': argument '{}': axis {} is {}; {}", family.name, port.name, a, size, what);
      };
      if (axis.dim < 0) {
        if (size != axis.size) refuse(fmt::format("expected {}, as when the graph was compiled", axis.size));
        continue;
      }
      const Dim& dim = family.dims[axis.dim];
      if (size > dim.max) refuse(fmt::format("dim '{}' is at most {}", dim.name, dim.max));
      if (size < dim.min) refuse(fmt::format("dim '{}' is at least {}", dim.name, dim.min));
      int64_t& extent = extents[axis.dim];
      if (extent >= 0 && extent != size)
        refuse(fmt::format("dim '{}' is {} in argument '{}'", dim.name, extent, family.inputs[said_by[axis.dim]].name));
      extent = size;
      said_by[axis.dim] = i;
    }
  }
  return extents;
}

std::vector<Part> parts_of(const Family& family, const Extents& extents) {
  const size_t n = family.dims.size();
  size_t split = n;  // the dim that is cut
  for (size_t d = 0; d < n; ++d)
    if (family.dims[d].fit == Fit::kSplit) split = d;
  // The smallest member in which `rest` fits; of the dim that is cut, the longest piece that needs no padding.
  const auto choose = [&](const Extents& rest) {
    int best = -1;
    const auto better = [&](const Extents& a, const Extents& b) {
      if (split < n && a[split] != b[split]) {
        const bool a_fills = a[split] <= rest[split], b_fills = b[split] <= rest[split];
        if (a_fills != b_fills) return a_fills;
        return a_fills ? a[split] > b[split] : a[split] < b[split];
      }
      return volume(a) < volume(b);
    };
    for (size_t m = 0; m < family.members.size(); ++m) {
      const Extents& member = family.members[m];
      bool fits = true;
      for (size_t d = 0; d < n && fits; ++d)
        fits = d == split || (family.dims[d].fit == Fit::kExact ? member[d] == rest[d] : member[d] >= rest[d]);
      if (fits && (best < 0 || better(member, family.members[best]))) best = static_cast<int>(m);
    }
    return best;
  };
  std::vector<Part> parts;
  Part part{0, Extents(n, 0), extents};
  while (true) {
    part.member = choose(part.extents);
    if (part.member < 0) break;
    const int64_t left = split < n ? part.extents[split] - family.members[part.member][split] : 0;
    if (left > 0) part.extents[split] -= left;
    parts.push_back(part);
    if (left <= 0) return parts;
    part.start[split] += part.extents[split];
    part.extents[split] = left;
  }
  for (size_t d = 0; d < n; ++d) {
    const Extents known = extents_in(family.members, d);
    if (family.dims[d].fit == Fit::kExact && std::find(known.begin(), known.end(), extents[d]) == known.end())
      fail(ErrorKind::kValue, "graph '{}': dim '{}' is {}; there are plans for {}, and its fit is exact", family.name,
           family.dims[d].name, extents[d], list_str(known));
  }
  fail(ErrorKind::kValue, "graph '{}': no member fits dims of ({})", family.name, list_str(extents));
}

FamilyLedger family_ledger(std::span<const Plan* const> members, bool shared_arenas,
                           const std::map<std::string, uint64_t>& held) {
  FamilyLedger ledger;
  std::map<std::string, uint64_t> shared = held;  // arenas, per space
  struct Held {
    uint64_t bytes = 0;
    bool shared = true;
  };
  std::map<std::pair<std::string, std::string>, Held> variables;   // by space and name
  std::map<std::pair<std::string, std::string>, uint64_t> packed;  // by name, and what it is
  const auto add = [&](const std::string& space, uint64_t bytes, uint64_t& category) {
    for (uint64_t* sum : {&category, &ledger.total, &ledger.spaces[space]}) *sum = checked_add(*sum, bytes);
  };
  const auto add_once = [&](const LedgerLine& line, const std::string& space, uint64_t& category) {
    add(space, line.bytes, category);
    if (line.shared) ledger.shared += line.bytes;
  };
  for (const Plan* plan : members) {
    std::map<std::string, uint64_t> own;
    const std::vector<bool> has_state = arenas_with_state(*plan);
    for (const LedgerLine& line : plan::ledger(*plan).lines) {
      const std::string space = plan->spaces[line.space].str();
      if (line.kind == LedgerLine::Kind::kConstant) {
        add_once(line, space, ledger.constants);
      } else if (line.kind == LedgerLine::Kind::kPacked) {
        const PackedCopy& copy = plan->packed[line.index];
        const Variable& variable = plan->variables[copy.variable];
        const std::string words = derivation_str(*plan, copy) + copy.format;
        if (variable.constant || packed.emplace(std::pair{variable.name, words}, line.bytes).second)
          add_once(line, space, ledger.packed);
      } else if (line.kind == LedgerLine::Kind::kVariable) {
        Held& variable = variables[{space, plan->variables[line.index].name}];
        variable = {std::max(variable.bytes, line.bytes), variable.shared && line.shared};
      } else if (shared_arenas && !has_state[line.index]) {
        own[space] = checked_add(own[space], line.bytes);
      } else {
        add(space, line.bytes, ledger.arenas);
      }
    }
    for (const auto& [space, bytes] : own) shared[space] = std::max(shared[space], bytes);
  }
  for (const auto& [space, bytes] : shared) add(space, bytes, ledger.arenas);
  for (const auto& [key, variable] : variables) {
    add(key.first, variable.bytes, ledger.variables);
    if (variable.shared) ledger.shared += variable.bytes;
  }
  return ledger;
}

}  // namespace sluice::plan
