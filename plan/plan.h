#pragma once
// The Plan: what the compiler makes and the runtime runs, as plain data. Everything refers to everything by index.
//
// An actor owns a straight program of kernels on one stream. Actors are joined by registers: one producer, n
// consumers (edges), `quota` slots. See plan/firing/firing.h for when an actor may fire.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/attr.h"
#include "base/device.h"
#include "base/extent_of.h"
#include "base/provenance.h"
#include "base/tensor_spec.h"

namespace sluice::plan {

inline constexpr int kSchemaVersion = 1;

enum class StreamKind : uint8_t { kCompute, kHost, kCopyIn, kCopyOut, kCollective };
const char* stream_kind_name(StreamKind kind);  // "compute", "host", "copy_in", "copy_out", "collective"

// An in-order queue of a device, served by one host thread. Plans of one engine share streams of equal
// (device, kind, index).
struct Stream {
  std::string name;  // "cpu:0/compute0"
  DeviceId device;
  StreamKind kind = StreamKind::kCompute;
  int index = 0;
  int cores = 1;  // threads its kernels are prepared for; part of the plan, since results may depend on it
};

enum class SpaceKind : uint8_t { kHost, kPinned, kDevice };
const char* space_kind_name(SpaceKind kind);

// A memory space: where an arena or a variable lies.
struct Space {
  SpaceKind kind = SpaceKind::kHost;
  DeviceId device;
  std::string str() const;  // "host", "pinned:cuda:0", "sim:0"; "1/host" of rank 1
  bool operator==(const Space&) const = default;
};

// One allocation, made when the plan is loaded. An arena with a stream is shared by buffers whose lifetimes do not
// overlap in that stream's fixed order of firings; an arena without one (-1) holds disjoint buffers.
struct Arena {
  std::string name;
  int space = 0;
  int stream = -1;
  uint64_t bytes = 0;
  uint64_t lower_bound = 0;  // no packing can be smaller
};

// A range of an arena. Offsets are multiples of kAlignment. An in-place kernel writes the buffer it reads.
inline constexpr uint64_t kAlignment = 64;
struct Buffer {
  std::string name;
  int arena = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// State that outlives a step: parameters, buffers, optimizer state, constants. Storage is bound when a plan is loaded.
struct Variable {
  std::string name;
  int space = 0;
  TensorSpec spec;
  bool constant = false;  // no kernel may write it
};

// What a kernel makes of variables alone, which no kernel of the plan writes.
struct Derivation {
  std::string op;
  NamedAttrs attrs;
  std::vector<int> inputs;  // variables, read whole; -1: an absent optional input
  TensorSpec spec;          // of its one output, contiguous
  bool operator==(const Derivation&) const = default;
};

// A copy of a variable in the order in which a kernel reads it fastest, kept by whoever runs the plan: equal to the
// variable whenever a step begins. No kernel of the plan writes the variable. A derived copy is of what a kernel makes
// of several variables, and must be kept; others may be left out, and the variable be read.
struct PackedCopy {
  std::string name;    // "conv1.weight/packed"
  int variable = 0;    // a derived one's first
  std::string format;  // how it lies, in the words of the kernel's library; equal texts mean equal orders. "": a
                       // derived one, contiguous
  uint64_t bytes = 0;
  std::optional<Derivation> derived = {};
};

enum class BaseKind : uint8_t { kBuffer, kRegister, kVariable };
const char* base_kind_name(BaseKind kind);

// A strided window. An output of base kRegister is the slot that this firing writes. An input is the token taken, where
// the actor consumes the register (also where it produces it); otherwise the slot it writes.
struct View {
  BaseKind base = BaseKind::kBuffer;
  int index = 0;        // of the buffer, register or variable; -1: an absent optional input (kernels get null)
  int token = 0;        // of kRegister consumed with take > 1: which of the tokens taken
  uint64_t offset = 0;  // bytes from the start of the base
  TensorSpec spec;
  int packed = -1;  // of kVariable, as an input: the copy that the kernel reads in its place, or -1. Of a derived one
                    // it is a view
};
// An optional input that is not given.
inline bool is_absent(const View& view) { return view.base == BaseKind::kBuffer && view.index == -1; }

struct Kernel : Provenance {
  std::string name;  // "conv1/conv", unique
  std::string op;
  NamedAttrs attrs;
  std::vector<View> inputs, outputs;
  int workspace = -1;   // buffer, or -1
  double cost_ns = 0;   // predicted
  int collective = -1;  // group whose ranks must all meet this call in the same order, or -1
};

enum class InstrKind : uint8_t { kRun, kEmit, kRelease };
const char* instr_kind_name(InstrKind kind);
struct Instr {
  InstrKind kind = InstrKind::kRun;
  int index = 0;  // kRun: kernel; kEmit: a register this actor produces; kRelease: an edge this actor consumes
  bool operator==(const Instr&) const = default;
};

// kFeed and kSource fire `starts` times per submitted step. The caller has written a feed's input slots, rows of a
// step's inputs for each firing; a source runs kernels, which may say that its data has ended. kSink: a firing hands
// the outputs to the caller's handle before its program releases them; it fires once in one or several steps, or
// several times in one, and then each firing gives the next rows.
enum class ActorRole : uint8_t { kNormal, kSource, kFeed, kSink };
const char* actor_role_name(ActorRole role);

// Its program emits every register it produces exactly once and releases every edge it consumes exactly once; whether
// a firing's emit or release takes effect is decided by the rates (plan/firing/firing.h).
struct Actor {
  std::string name;
  int stream = 0;
  ActorRole role = ActorRole::kNormal;
  std::vector<Instr> program;
  int starts = 1;  // of kFeed and kSource: firings per step, as callers count steps
};

struct Register {
  std::string name;
  int producer = 0;
  int quota = 1;
  uint64_t bytes = 0;      // capacity of a slot; 0 for a control register
  std::vector<int> slots;  // buffer of each slot (size quota); empty for a control register
  int emit_every = 1;      // one token per so many firings of the producer, at the last of them
  int initial_tokens = 0;  // tokens present at the start (feedback); at most quota
  int in_place_of = -1;    // edge of the producer whose slots this register shares, or -1
};

// A consumer of a register: acquires `take` tokens at the first of every `hold` firings, returns them at the last.
struct Edge {
  int reg = 0;
  int consumer = 0;
  int take = 1;
  int hold = 1;
};

inline bool is_started(const Actor& actor) {
  return actor.role == ActorRole::kSource || actor.role == ActorRole::kFeed;
}

// How callers see the plan.
struct Input {
  std::string name;
  int reg = 0;  // produced by the kFeed actor
  TensorSpec spec;
};
struct Output {
  std::string name;
  View view;  // of a register consumed by the kSink actor
  std::optional<ExtentOf> extent_of = {};
  std::vector<int> axes = {};  // of what the program gives, in the order in which the view has them; empty: it is that
};

struct Plan {
  int schema_version = kSchemaVersion;
  std::string name;
  NamedAttrs options;  // what the compiler was asked for
  std::string target;  // Target::fingerprint()
  std::vector<Space> spaces;
  std::vector<Stream> streams;
  std::vector<Arena> arenas;
  std::vector<Buffer> buffers;
  std::vector<Variable> variables;
  std::vector<PackedCopy> packed;
  std::vector<Kernel> kernels;
  std::vector<Actor> actors;
  std::vector<Register> registers;
  std::vector<Edge> edges;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<int> certificate;  // actors in the order they may fire for one period that returns to the initial state
};

// The packed copy of a variable, or of what is derived from it, in a format, added where the plan has none. Returns its
// index.
int packed_copy(Plan& plan, int variable, const std::string& format, uint64_t bytes,
                const std::optional<Derivation>& derived = {});
// The copy of what is derived as the kernel makes it. Returns its index.
int derived_copy(Plan& plan, const Derivation& derived);
// The variables that a copy is made of.
std::vector<int> sources_of(const PackedCopy& copy);
// "fold_weight(conv1.weight, bn1.running_var, none)": what is derived, in words that mean the same in other plans, too;
// "" for other copies.
std::string derivation_str(const Plan& plan, const PackedCopy& copy);
// Which variables kernels write.
std::vector<bool> written_variables(const Plan& plan);
// Which variables some kernel reads as they are, rather than packed copies of them.
std::vector<bool> read_plain(const Plan& plan);

// Edges by consumer and by register, registers by producer: the adjacency every reader needs.
struct Adjacency {
  explicit Adjacency(const Plan& plan);
  std::vector<std::vector<int>> in_edges;        // per actor: edges it consumes
  std::vector<std::vector<int>> out_registers;   // per actor: registers it produces
  std::vector<std::vector<int>> register_edges;  // per register: its edges
};

}  // namespace sluice::plan
