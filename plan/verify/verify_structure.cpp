// Structure: every index, unique names, programs in legal order.
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_set>

#include "plan/verify.h"
#include "plan/verify/quota.h"

namespace sluice::plan {
namespace {

constexpr int kMaxRate = 1 << 20;

class Structure {
 public:
  Structure(const Plan& plan, VerifyReport& report) : plan_(plan), report_(report) {}

  void run() {
    schema_version();
    names();
    indices();
    // Each check may rely on what the ones before it have found to hold.
    if (!report_.ok()) return;  // the rest follows indices
    const Adjacency adjacency(plan_);
    edges(adjacency);
    in_place(adjacency);
    packed_copies();
    if (!report_.ok()) return;
    for (int a = 0; a < count(plan_.actors); ++a) program(adjacency, a);
    started(adjacency);
    interface(adjacency);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back({"structure", fmt::format(format, std::forward<Args>(args)...)});
  }
  template <class T>
  static int count(const std::vector<T>& v) {
    return static_cast<int>(v.size());
  }
  void schema_version() {
    if (plan_.schema_version != kSchemaVersion) {
      problem("schema version: {}; must be {}", plan_.schema_version, kSchemaVersion);
    }
  }

  void names() {
    unique("stream", plan_.streams);
    unique("arena", plan_.arenas);
    unique("variable", plan_.variables);
    unique("packed copy", plan_.packed);
    unique("kernel", plan_.kernels);
    unique("actor", plan_.actors);
    unique("register", plan_.registers);
    unique("input", plan_.inputs);
    unique("output", plan_.outputs);
  }
  template <class T>
  void unique(const char* what, const std::vector<T>& entities) {
    std::unordered_set<std::string_view> seen;
    seen.reserve(entities.size());
    for (const T& entity : entities) {
      if (entity.name.empty()) problem("{} {}: has no name; every {} needs one", what, &entity - entities.data(), what);
      if (!seen.insert(entity.name).second)
        problem("{} '{}': the name appears twice; names must be unique", what, entity.name);
    }
  }

  // True when 0 <= index < size (or index == -1 where allowed).
  template <class T>
  bool index(const std::string& where, const char* what, int index, const std::vector<T>& of, bool optional = false) {
    if ((optional && index == -1) || (index >= 0 && index < count(of))) return true;
    problem("{}: {} out of range: {}; must be less than {}{}", where, what, index, of.size(),
            optional ? ", or -1" : "");
    return false;
  }
  bool range(const std::string& where, const char* what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return true;
    problem("{}: {} is {}; must be in {} to {}", where, what, value, low, high);
    return false;
  }

  void view_index(const std::string& where, const View& view) {
    switch (view.base) {
      case BaseKind::kBuffer: index(where, "buffer", view.index, plan_.buffers); break;
      case BaseKind::kRegister: index(where, "register", view.index, plan_.registers); break;
      case BaseKind::kVariable: index(where, "variable", view.index, plan_.variables); break;
    }
    index(where, "packed copy", view.packed, plan_.packed, true);
  }

  void indices() {
    for (const Stream& s : plan_.streams) range("stream '" + s.name + "'", "cores", s.cores, 1, 4096);
    for (const Arena& a : plan_.arenas) {
      index("arena '" + a.name + "'", "space", a.space, plan_.spaces);
      index("arena '" + a.name + "'", "stream", a.stream, plan_.streams, true);
    }
    for (const Buffer& b : plan_.buffers) index("buffer '" + b.name + "'", "arena", b.arena, plan_.arenas);
    for (const Variable& v : plan_.variables) index("variable '" + v.name + "'", "space", v.space, plan_.spaces);
    for (const PackedCopy& p : plan_.packed) {
      index("packed copy '" + p.name + "'", "variable", p.variable, plan_.variables);
      for (const int source : sources_of(p)) index("packed copy '" + p.name + "'", "source", source, plan_.variables);
    }
    for (const Kernel& k : plan_.kernels) {
      const std::string where = "kernel '" + k.name + "'";
      index(where, "workspace", k.workspace, plan_.buffers, true);
      for (const View& v : k.inputs) {
        if (is_absent(v))
          index(where, "packed copy", v.packed, plan_.packed, true);
        else
          view_index(where, v);
      }
      for (const View& v : k.outputs) view_index(where, v);
    }
    for (const Actor& a : plan_.actors) {
      const std::string where = "actor '" + a.name + "'";
      index(where, "stream", a.stream, plan_.streams);
      range(where, "starts", a.starts, 1, is_started(a) ? kMaxRate : 1);
      for (const Instr& i : a.program) {
        if (i.kind == InstrKind::kRun) index(where, "kernel", i.index, plan_.kernels);
        if (i.kind == InstrKind::kEmit) index(where, "register", i.index, plan_.registers);
        if (i.kind == InstrKind::kRelease) index(where, "edge", i.index, plan_.edges);
      }
    }
    for (const Register& r : plan_.registers) {
      const std::string where = "register '" + r.name + "'";
      index(where, "producer", r.producer, plan_.actors);
      if (!range(where, "quota", r.quota, 1, kMaxQuota)) continue;
      range(where, "emit_every", r.emit_every, 1, kMaxRate);
      range(where, "initial_tokens", r.initial_tokens, 0, r.quota);
      index(where, "in_place_of", r.in_place_of, plan_.edges, true);
      const int slots = r.bytes == 0 ? 0 : r.quota;
      if (count(r.slots) != slots) {
        problem("{}: {} slots; a register of {} bytes and quota {} has {}", where, r.slots.size(), r.bytes, r.quota,
                slots);
      }
      for (const int slot : r.slots) index(where, "slot's buffer", slot, plan_.buffers);
    }
    for (int e = 0; e < count(plan_.edges); ++e) {
      const Edge& edge = plan_.edges[e];
      const std::string where = fmt::format("edge {}", e);
      const bool known = index(where, "register", edge.reg, plan_.registers);
      index(where, "consumer", edge.consumer, plan_.actors);
      range(where, "hold", edge.hold, 1, kMaxRate);
      if (known) {
        const Register& r = plan_.registers[edge.reg];
        if (edge.take < 1 || edge.take > r.quota) {
          problem("edge {} of register '{}': takes {} tokens of a register of quota {}; take must be in 1 to quota", e,
                  r.name, edge.take, r.quota);
        }
      }
    }
    for (const Input& i : plan_.inputs) index("input '" + i.name + "'", "register", i.reg, plan_.registers);
    for (const Output& o : plan_.outputs) view_index("output '" + o.name + "'", o.view);
    for (const int a : plan_.certificate) index("certificate", "actor", a, plan_.actors);
  }

  void edges(const Adjacency& adjacency) {
    for (int r = 0; r < count(plan_.registers); ++r) {
      std::set<int> consumers;
      for (const int e : adjacency.register_edges[r]) {
        if (!consumers.insert(plan_.edges[e].consumer).second) {
          problem("register '{}': actor '{}' consumes it twice; one edge per consumer", plan_.registers[r].name,
                  plan_.actors[plan_.edges[e].consumer].name);
        }
      }
    }
  }

  // The register takes over the edge's slots one by one, so both must move in step.
  // A writer in place of another register's token destroys that token. So nobody else may read it, and it must be given
  // back only when the new token has been read.
  void in_place(const Adjacency& adjacency) {
    std::set<int> taken;
    for (const Register& r : plan_.registers) {
      if (r.in_place_of < 0) continue;
      const Edge& edge = plan_.edges[r.in_place_of];
      const Register& from = plan_.registers[edge.reg];
      const std::string where = fmt::format("register '{}' in place of '{}'", r.name, from.name);
      if (edge.consumer != r.producer) {
        problem("{}: '{}' does not consume it; in_place_of must be an edge of the producer", where,
                plan_.actors[r.producer].name);
      }
      if (adjacency.register_edges[edge.reg].size() != 1) {
        problem("{}: it has {} consumers; only a sole consumer may overwrite it", where,
                adjacency.register_edges[edge.reg].size());
      }
      if (edge.take != 1 || edge.hold != r.emit_every) {
        problem("{}: takes {} per {} firings, emits 1 per {}; must take 1 and emit as it takes", where, edge.take,
                edge.hold, r.emit_every);
      }
      if (r.quota != from.quota || r.slots != from.slots)
        problem("{}: slots differ; both must have the same buffers", where);
      if (r.bytes > from.bytes) problem("{}: {} bytes do not fit into {}", where, r.bytes, from.bytes);
      if (r.initial_tokens != 0) problem("{}: has {} initial tokens; must have none", where, r.initial_tokens);
      if (!taken.insert(r.in_place_of).second)
        problem("{}: another register is in its place too; only one may be", where);
    }
  }

  void program(const Adjacency& adjacency, int a) {
    const Actor& actor = plan_.actors[a];
    const std::string where = "actor '" + actor.name + "'";
    // The program is followed once, in order: a kernel may write a register until it is emitted, and read a token until
    // it is released. After that another actor may have the slot.
    std::set<int> written, emitted, released;  // registers, registers, edges
    std::set<int> to_emit(adjacency.out_registers[a].begin(), adjacency.out_registers[a].end());
    std::set<int> to_release(adjacency.in_edges[a].begin(), adjacency.in_edges[a].end());
    for (const Instr& instr : actor.program) {
      if (instr.kind == InstrKind::kRun) {
        if (!run_once_.insert(instr.index).second) {
          problem("{}: kernel '{}' is in several places; a kernel is run by one instruction", where,
                  plan_.kernels[instr.index].name);
        }
        kernel(adjacency, a, instr.index, written, emitted, released);
      } else if (instr.kind == InstrKind::kEmit) {
        const Register& r = plan_.registers[instr.index];
        if (!to_emit.count(instr.index))
          problem("{}: emits '{}', which '{}' produces", where, r.name, plan_.actors[r.producer].name);
        if (!emitted.insert(instr.index).second) problem("{}: emits '{}' twice; once per program", where, r.name);
        const bool filled =
            written.count(instr.index) || r.bytes == 0 || r.in_place_of >= 0 || actor.role == ActorRole::kFeed;
        if (!filled) problem("{}: emits '{}' before any kernel has written it", where, r.name);
        if (r.in_place_of >= 0 && released.count(r.in_place_of) && r.bytes > 0 && !written.count(instr.index)) {
          problem("{}: emits '{}' after releasing the slot it lies in", where, r.name);
        }
      } else {
        const std::string& name = plan_.registers[plan_.edges[instr.index].reg].name;
        if (!to_release.count(instr.index))
          problem("{}: releases '{}', which it does not consume by edge {}", where, name, instr.index);
        if (!released.insert(instr.index).second) problem("{}: releases '{}' twice; once per program", where, name);
      }
    }
    for (const int r : to_emit) {
      if (!emitted.count(r))
        problem("{}: never emits '{}'; every register it produces must be emitted", where, plan_.registers[r].name);
    }
    for (const int e : to_release) {
      if (!released.count(e)) {
        problem("{}: never releases '{}'; every register it consumes must be released", where,
                plan_.registers[plan_.edges[e].reg].name);
      }
    }
  }

  void kernel(const Adjacency& adjacency, int a, int k, std::set<int>& written, const std::set<int>& emitted,
              const std::set<int>& released) {
    const Kernel& kernel = plan_.kernels[k];
    const std::string where = fmt::format("kernel '{}' of actor '{}'", kernel.name, plan_.actors[a].name);
    // The edge by which this actor consumes the register; -1: it does not.
    const auto edge_of = [&](int reg) {
      for (const int e : adjacency.in_edges[a]) {
        if (plan_.edges[e].reg == reg) return e;
      }
      return -1;
    };
    const auto consumed = [&](const View& v, const char* verb) {
      const Register& r = plan_.registers[v.index];
      const int e = edge_of(v.index);
      if (e < 0) {
        problem("{}: {} register '{}', which its actor neither produces nor consumes", where, verb, r.name);
        return;
      }
      if (released.count(e)) problem("{}: {} '{}' after its release", where, verb, r.name);
      if (v.token >= plan_.edges[e].take) {
        problem("{}: {} token {} of '{}', of which {} are taken", where, verb, v.token, r.name, plan_.edges[e].take);
      }
    };
    for (const View& v : kernel.inputs) {
      if (v.token < 0 || (v.base != BaseKind::kRegister && v.token != 0))
        problem("{}: token is {}; must be 0 here", where, v.token);
      if (v.base == BaseKind::kRegister) {
        const Register& r = plan_.registers[v.index];
        const int e = edge_of(v.index);
        // A register that the actor consumes is read as the token taken, also where the actor makes the next one
        // itself.
        if (r.producer == a && e < 0) {
          const bool filled = written.count(v.index) || r.in_place_of >= 0 || r.emit_every > 1;
          if (!filled) problem("{}: reads '{}' before any kernel has written it", where, r.name);
          if (emitted.count(v.index) && overwritten(adjacency, v.index)) {
            problem("{}: reads '{}' after its emit, while a consumer overwrites it in place", where, r.name);
          }
        } else {
          consumed(v, "reads");
        }
      }
    }
    for (const View& v : kernel.outputs) {
      if (v.base == BaseKind::kVariable && plan_.variables[v.index].constant) {
        problem("{}: writes '{}', which is constant", where, plan_.variables[v.index].name);
      }
      if (v.base != BaseKind::kRegister) continue;
      const Register& r = plan_.registers[v.index];
      if (r.producer != a) {
        problem("{}: writes register '{}', which '{}' produces", where, r.name, plan_.actors[r.producer].name);
        continue;
      }
      if (emitted.count(v.index)) problem("{}: writes '{}' after its emit", where, r.name);
      if (r.in_place_of >= 0 && released.count(r.in_place_of) && !written.count(v.index)) {
        problem("{}: writes '{}' after releasing the slot it lies in", where, r.name);
      }
      written.insert(v.index);
    }
  }

  void derivation(const PackedCopy& p, const std::vector<int>& sources) {
    const Derivation& made = *p.derived;
    if (made.op.empty() || sources.empty() || sources.front() != p.variable)
      problem(
          "packed copy '{}': derived by '{}' of {} variables; must have an op, and its variable as the first of them",
          p.name, made.op, sources.size());
  }

  // Made between steps, of variables that no step of this plan changes; read by kernels in place of those.
  void packed_copies() {
    const std::vector<bool> written = written_variables(plan_);
    for (const PackedCopy& p : plan_.packed) {
      const std::vector<int> sources = sources_of(p);
      for (const int source : sources) {
        const Variable& variable = plan_.variables[source];
        if (written[source])
          problem("packed copy '{}': of variable '{}', which a kernel writes; only others are packed", p.name,
                  variable.name);
        const SpaceKind kind = plan_.spaces[variable.space].kind;
        if (kind != SpaceKind::kHost)
          problem("packed copy '{}': of variable '{}' in {} memory; only those of the host are packed", p.name,
                  variable.name, space_kind_name(kind));
      }
      if ((p.format.empty() && !p.derived) || p.bytes == 0)
        problem("packed copy '{}': format '{}' of {} bytes; must have a format, and bytes", p.name, p.format, p.bytes);
      if (p.derived) derivation(p, sources);
    }
    const auto check = [&](const char* what, const std::string& name, const View& v, bool input) {
      if (v.packed < 0) return;
      const bool reads = input && v.base == BaseKind::kVariable && v.index == plan_.packed[v.packed].variable;
      if (!reads || v.offset != 0)
        problem(
            "{} '{}': packed copy '{}' in place of {} {} at offset {}; must be of the variable that it reads, from its "
            "start",
            what, name, plan_.packed[v.packed].name, base_kind_name(v.base), v.index, v.offset);
    };
    for (const Kernel& k : plan_.kernels) {
      for (const View& v : k.inputs) check("kernel", k.name, v, true);
      for (const View& v : k.outputs) check("kernel", k.name, v, false);
    }
    for (const Output& o : plan_.outputs) check("output", o.name, o.view, false);
  }

  bool overwritten(const Adjacency& adjacency, int reg) const {
    for (const int e : adjacency.register_edges[reg]) {
      for (const int r : adjacency.out_registers[plan_.edges[e].consumer]) {
        if (plan_.registers[r].in_place_of == e) return true;
      }
    }
    return false;
  }

  // Every actor must be downstream of a source or feed: otherwise it fires unasked and its end never comes.
  void started(const Adjacency& adjacency) {
    std::vector<bool> reached(plan_.actors.size());
    std::vector<int> queue;
    for (int a = 0; a < count(plan_.actors); ++a) {
      if (!is_started(plan_.actors[a])) continue;
      reached[a] = true;
      queue.push_back(a);
    }
    for (size_t i = 0; i < queue.size(); ++i) {
      for (const int r : adjacency.out_registers[queue[i]]) {
        for (const int e : adjacency.register_edges[r]) {
          const int c = plan_.edges[e].consumer;
          if (reached[c]) continue;
          reached[c] = true;
          queue.push_back(c);
        }
      }
    }
    for (int a = 0; a < count(plan_.actors); ++a) {
      if (!reached[a]) {
        problem("actor '{}': no source or feed is upstream of it; it would fire without being started and never end",
                plan_.actors[a].name);
      }
    }
  }

  static std::string on_rank(int rank) { return rank == 0 ? "" : fmt::format(" on rank {}", rank); }

  void interface(const Adjacency& adjacency) {
    std::map<int, int> feeds, sinks;  // by rank
    for (const Actor& a : plan_.actors) {
      const int rank = plan_.streams[a.stream].device.rank;
      if (a.role == ActorRole::kFeed) ++feeds[rank];
      if (a.role == ActorRole::kSink) ++sinks[rank];
    }
    for (const auto& [rank, n] : feeds) {
      if (n > 1) problem("{} feed actors{}; a plan has at most one on each rank", n, on_rank(rank));
    }
    for (const auto& [rank, n] : sinks) {
      if (n > 1) problem("{} sink actors{}; a plan has at most one on each rank", n, on_rank(rank));
    }
    for (const Input& i : plan_.inputs) {
      const Register& r = plan_.registers[i.reg];
      const Actor& producer = plan_.actors[r.producer];
      if (producer.role != ActorRole::kFeed) {
        problem("input '{}': register '{}' is produced by '{}'; must be produced by the feed", i.name, r.name,
                producer.name);
      } else if (r.emit_every != 1 || r.initial_tokens != 0) {
        problem(
            "input '{}': register '{}' has emit_every {} and {} initial tokens; the feed must emit it at every firing",
            i.name, r.name, r.emit_every, r.initial_tokens);
      }
    }
    for (const Output& o : plan_.outputs) {
      const TensorType type{o.view.spec.dtype, o.view.spec.shape};
      if (o.extent_of && type != TensorType{DType::kInt64, {}})
        problem("output '{}': it tells how long '{}' is, and is {}; must be int64[]", o.name, o.extent_of->output,
                type.str());
      std::vector<int> axes(o.axes.empty() ? 0 : type.shape.rank());
      std::iota(axes.begin(), axes.end(), 0);
      if (!std::is_permutation(axes.begin(), axes.end(), o.axes.begin(), o.axes.end()))
        problem("output '{}': axes ({}) of {}; must name each axis once, or be empty", o.name, fmt::join(o.axes, ", "),
                type.str());
      if (o.view.base != BaseKind::kRegister) {
        problem("output '{}': views a {}; must view a register the sink consumes", o.name, base_kind_name(o.view.base));
        continue;
      }
      bool found = false;
      for (const int e : adjacency.register_edges[o.view.index]) {
        found |= plan_.actors[plan_.edges[e].consumer].role == ActorRole::kSink && o.view.token < plan_.edges[e].take;
      }
      if (!found) problem("output '{}': the sink does not consume '{}'", o.name, plan_.registers[o.view.index].name);
    }
  }

  const Plan& plan_;
  VerifyReport& report_;
  std::set<int> run_once_;
};

}  // namespace

void verify_structure(const Plan& plan, VerifyReport& report) { Structure(plan, report).run(); }

}  // namespace sluice::plan
