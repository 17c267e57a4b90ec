// attention and its backward, which never hold the scores: the running maximum and sum of a row over tiles of keys, and
// gradients from scores that are made again (Dao et al., "FlashAttention", 2022). Queries' gradients are summed over
// keys by blocks of queries, those of keys and values over queries by blocks of keys: no sum is shared by two blocks,
// so there are no atomics and one order.
//
// Why not two products by cuBLASLt with the scores in memory: GPT-2 small's 96 heads of 1024 x 1024 scores in a layer
// are 100 million numbers, which parts of their own read and write about ten times over, 2 GB or 1 ms of an H100's
// memory, for 26 GFLOP, which its tensor cores make in 0.1 ms. Operands of 16 bits, and of float32 that may be rounded
// to TF32, take tensor cores here for heads up to 128 wide; others are summed in their own type by ordinary
// multiply-adds: of 13 GFLOP with half of the tiles left out.
#include "kernels/cpu/random/philox.h"
#include "kernels/cpu/support/support.h"
#include "kernels/cuda/attention/attention_text.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/writer.h"
#include "plan/query.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kWarpRows = 128;    // of a block
constexpr int64_t kWidestHead = 128;  // that fits a warp's registers

struct Sizes {
  int64_t batch = 0, heads = 0, own_heads = 0, rows = 0, keys = 0, width = 0, value_width = 0;
  DType dtype = DType::kFloat32;
  bool by_warps = false, halves = false;
};

// `first`: the operand that is the query; key and value follow it.
Sizes sizes_of(const plan::KernelQuery& query, size_t first) {
  const Shape &q = query.inputs[first].shape, &k = query.inputs[first + 1].shape, &v = query.inputs[first + 2].shape;
  Sizes s{q[0], q[1], k[1], q[2], k[2], q[3], v[3], query.inputs[first].dtype};
  const bool may_round = plan::beside<std::string>(query.attrs, plan::kPrecision, "highest") != "highest";
  s.halves = dtype_size(s.dtype) == 2;
  s.by_warps = (s.halves || (s.dtype == DType::kFloat32 && may_round)) && s.width > 0 && s.value_width > 0 &&
               s.width <= kWidestHead && s.value_width <= kWidestHead &&
               std::stoi(architecture(query.device).substr(3)) >= 80;
  return s;
}

std::string place_function(const char* name, const TensorSpec& spec) {
  const auto stride = [&](int i) { return spec.shape[i] == 1 ? 0 : spec.strides[i]; };
  return fmt::format(
      "__device__ inline Index {}_at(Index n, Index h, Index r, Index c) {{ return n * {} + h * {} + r * {} + c * {}; "
      "}}\n",
      name, stride(0), stride(1), stride(2), stride(3));
}

// The beginning that all kernels of a query share. `mask` is the operand that is the mask; the dropout's state follows
// it.
Writer begin(const plan::KernelQuery& query, const Sizes& s, size_t first, size_t mask, size_t inputs) {
  Writer writer(query, inputs);
  writer.compute(s.dtype);
  writer.add(fmt::format("typedef In{} T;\n", first));
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"kHeads", s.heads},
                                    {"kOwnHeads", s.own_heads},
                                    {"kGroup", s.own_heads == 0 ? 1 : s.heads / s.own_heads},
                                    {"kRows", s.rows},
                                    {"kKeys", s.keys},
                                    {"kE", s.width},
                                    {"kV", s.value_width}}) {
    writer.constant(name, value);
  }
  writer.number("kScale", get_attr<double>(query.attrs, "scale"));
  writer.add(fmt::format("constexpr bool kCausal = {};\n", get_attr<bool>(query.attrs, "is_causal")));
  const char* names[] = {"q", "k", "v"};
  for (size_t i = 0; i < 3; ++i) writer.add(place_function(names[i], query.inputs[first + i]));
  std::string taken = "product * kScale";
  if (cpu::has_operand(query.inputs, mask)) {
    writer.add(place_function("mask", query.inputs[mask]));
    taken = query.inputs[mask].dtype == DType::kBool ? "mask[mask_at(n, h, row, col)] ? product * kScale : (C)-INFINITY"
                                                     : "product * kScale + (C)load(mask[mask_at(n, h, row, col)])";
  }
  writer.add(fmt::format(R"(// What the mask leaves of a query row and a key, from their product.
template <class M> __device__ inline C given(C product, const M* mask, Index n, Index h, Index row, Index col) {{
  return {};
}}
// The same; -infinity where the key takes no part.
template <class M> __device__ inline C score(C product, const M* mask, Index n, Index h, Index row, Index col) {{
  if (row >= kRows || col >= kKeys || (kCausal && col > row)) return (C)-INFINITY;
  return given(product, mask, n, h, row, col);
}}
// Whether every key of some takes part in every row of some.
__device__ inline bool all_take_part(Index row, Index rows, Index col, Index cols) {{
  return row + rows <= kRows && col + cols <= kKeys && (!kCausal || col + cols - 1 <= row);
}}
)",
                         taken));
  const double p = get_attr<double>(query.attrs, "dropout_p");
  if (p > 0) {
    writer.add(
        fmt::format("constexpr u64 kSalt = {}ULL;\n", static_cast<uint64_t>(get_attr<int64_t>(query.attrs, "salt"))));
    writer.add(philox_functions());
  }
  writer.add(fmt::format(
      "// What dropout multiplies a weight by.\n"
      "__device__ inline C kept(const i64* state, Index n, Index h, Index row, Index col) {{\n  return {};\n}}\n",
      p == 0
          ? "1"
          : fmt::format("word_at(state, 0, (((u64)n * kHeads + h) * kRows + row) * kKeys + col) < {}ULL ? (C){} : (C)0",
                        cpu::chosen_below(1 - p), number_text(cpu::dropout_scale(p)))));
  return writer;
}

// Whether registers hold the gradients of keys and of values at once.
bool is_narrow(const Sizes& s) { return std::max(s.width, s.value_width) <= 64; }

// The statements that name operands.
std::string operands(size_t first, size_t mask) {
  return fmt::format(
      "  const T *q = in{}, *k = in{}, *v = in{};\n  const auto* mask = in{};\n  const i64* state = (const "
      "i64*)in{};\n",
      first, first + 1, first + 2, mask, mask + 1);
}

// Whether rows are whole packs of 16 bytes, each at a multiple of that from the tensor's address.
bool is_packed(const TensorSpec& spec) {
  const int64_t pack = pack_of(spec.dtype, spec.shape[3]);
  bool packed = pack > 1 && spec.strides[3] == 1;
  for (int i = 0; i < 3; ++i) packed = packed && (spec.shape[i] == 1 || spec.strides[i] % pack == 0);
  return packed;
}

// The source of a part that makes `columns` columns for each of `own` rows, which `heads` heads have.
Source tiled(Writer writer, const Sizes& s, AttentionPart part, const char* name, int64_t columns,
             const std::string& operands) {
  const bool wide = s.dtype == DType::kFloat64, keys = part == AttentionPart::kKeys;
  const int64_t tile = wide ? 32 : 64, at_once = columns > tile ? 2 : 1;
  const int64_t tiles = ceil_div(keys ? s.keys : s.rows, tile), owners = keys ? s.own_heads : s.heads;
  const int64_t parts = std::max<int64_t>(ceil_div(columns, tile * at_once), 1);
  for (const auto& [constant, value] : {std::pair<const char*, int64_t>{"kTile", tile},
                                        {"kEach", tile / 16},
                                        {"kDepth", wide ? 16 : 32},
                                        {"kPitch", tile + 4},
                                        {"kWide", at_once},
                                        {"kParts", parts},
                                        {"kTiles", tiles},
                                        {"kOwners", owners}}) {
    writer.constant(constant, value);
  }
  writer.add(kTileFunctions);
  return writer.blocks(name, s.batch * owners * parts * tiles, operands + tiled_attention(part));
}

Source by_warps(Writer writer, const Sizes& s, AttentionPart part, const char* name, bool makes_keys, bool makes_values,
                const std::string& operands) {
  const bool keys = part == AttentionPart::kKeys, narrow = is_narrow(s);
  const int64_t tiles = ceil_div(keys ? s.keys : s.rows, kWarpRows), owners = keys ? s.own_heads : s.heads;
  const int64_t width = ceil_div(s.width, 16) * 16, value_width = ceil_div(s.value_width, 16) * 16;
  // Rows lie so far apart that eight of them, or the rows and columns of attention_warps.cpp, share no bank.
  const auto pitch = [&](int64_t columns) { return s.halves ? columns + 8 : ceil_div(columns, 32) * 32 + 8; };
  const bool result = part == AttentionPart::kResult;
  for (const auto& [constant, value] :
       {std::pair<const char*, int64_t>{"kOther", s.halves ? (result ? 64 : 32) : (result || narrow ? 32 : 16)},
        {"kE16", width},
        {"kV16", value_width},
        {"kEPitch", pitch(width)},
        {"kVPitch", pitch(value_width)},
        {"kTiles", tiles},
        {"kOwners", owners},
        {"kOwnsKeys", keys},
        {"kMakesKeys", makes_keys},
        {"kMakesValues", makes_values}}) {
    writer.constant(constant, value);
  }
  writer.add(warp_functions(s.halves));
  // Two blocks of narrow heads fit: one computes while the other waits for its tile.
  const int per_sm = narrow && (s.halves || result) ? 2 : 1;
  return writer.blocks(name, s.batch * owners * tiles, operands + warp_attention(part), per_sm);
}

// in0 to in4: query, key, value, mask, state.
Generated attention(const plan::KernelQuery& query) {
  const Sizes s = sizes_of(query, 0);
  Writer writer = begin(query, s, 0, 3, 5);
  writer.add(place_function("out", query.outputs[0]));
  for (const auto& [name, operand] : {std::pair{"kPackedQ", 0}, {"kPackedK", 1}, {"kPackedV", 2}})
    writer.constant(name, is_packed(query.inputs[static_cast<size_t>(operand)]));
  if (s.by_warps) return {{by_warps(writer, s, AttentionPart::kResult, "", false, false, operands(0, 3))}};
  return {{tiled(writer, s, AttentionPart::kResult, "", s.value_width, operands(0, 3))}};
}

// in0 to in8: the gradient, query, key, value, the result, its log-sum-exp and, if given, mask, state and the
// gradient of the log-sum-exp.
Generated attention_backward(const plan::KernelQuery& query) {
  const Sizes s = sizes_of(query, 1);
  Writer writer = begin(query, s, 1, 6, 9);
  for (const auto& [name, spec] : {std::pair{"grad", query.inputs[0]},
                                   {"result", query.inputs[4]},
                                   {"dq", query.outputs[0]},
                                   {"dk", query.outputs[1]},
                                   {"dv", query.outputs[2]}}) {
    writer.add(place_function(name, spec));
  }
  for (const auto& [name, operand] : {std::pair{"kPackedGrad", 0}, {"kPackedQ", 1}, {"kPackedK", 2}, {"kPackedV", 3}})
    writer.constant(name, is_packed(query.inputs[static_cast<size_t>(operand)]));
  Generated generated;
  const int64_t rows = s.batch * s.heads * s.rows;
  generated.workspace_bytes = static_cast<uint64_t>(rows) * compute_size(s.dtype);
  Writer with = writer;
  with.add("struct A { C v; };\n__device__ inline A join(A a, A b) { return A{a.v + b.v}; }\n");
  generated.stages.push_back(
      with.teams("delta", rows, team_for(s.value_width, false),
                 fmt::format(R"(  const Index row = unit % kRows, h = unit / kRows % kHeads, n = unit / kRows / kHeads;
  A part = {{0}};
  for (Index c = member(); inside && c < kV; c += kTeam)
    part.v += (C)load(in0[grad_at(n, h, row, c)]) * (C)load(in4[result_at(n, h, row, c)]);
  part = over_team(part);
  if (inside && member() == 0) ((C*)work)[unit] = part.v{};
)",
                             cpu::has_operand(query.inputs, 8) ? " - (C)in8[unit]" : "")));
  const std::string named = operands(1, 6) + "  const T* grad = in0;\n  const C *lse = in5, *delta = (const C*)work;\n";
  if (s.by_warps) {
    const bool narrow = is_narrow(s);
    generated.stages.push_back(by_warps(writer, s, AttentionPart::kQueries, "queries", false, false, named));
    generated.stages.push_back(by_warps(writer, s, AttentionPart::kKeys, "keys", true, narrow, named));
    if (!narrow) generated.stages.push_back(by_warps(writer, s, AttentionPart::kKeys, "values", false, true, named));
  } else {
    generated.stages.push_back(tiled(writer, s, AttentionPart::kQueries, "queries", s.width, named));
    generated.stages.push_back(tiled(writer, s, AttentionPart::kKeys, "keys", std::max(s.width, s.value_width), named));
  }
  return generated;
}

}  // namespace

void add_attention_kernels(KernelTable& table) {
  add_generated(table, "attention", attention,
                {cudnn_name(), [](const plan::KernelQuery& query) { return cudnn_attention(query, attention); }});
  add_generated(table, "attention_backward", attention_backward, {cudnn_name(), [](const plan::KernelQuery& query) {
                                                                    return cudnn_attention(query, attention_backward);
                                                                  }});
}

}  // namespace sluice::cuda
