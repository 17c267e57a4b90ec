#include "kernels/cuda/writer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/prelude.h"

namespace sluice::cuda {
namespace {

// Below it, offsets and counts are computed in 32 bits.
constexpr uint64_t kSmall = uint64_t{1} << 30;
constexpr int64_t kMostBlocks = 4096;      // of a loop over elements
constexpr int64_t kWorthAThread = 16;      // elements of a reduction that are worth a thread of their own
constexpr int64_t kReducingBlocks = 1024;  // which it takes to read memory as fast as it can be read
constexpr int64_t kEnoughBlocks = 256;     // to fill a device
constexpr int64_t kMostParts = 64;

std::string parameter(size_t i, const char* kind, bool is_const) {
  return fmt::format(", {}{}{}* {}{}", is_const ? "const " : "", kind, i, is_const ? "in" : "out", i);
}

}  // namespace

namespace {

[[noreturn]] void refuse_complex(const char* dtype) {
  fail(ErrorKind::kUnsupported, "cuda: no kernel for {}; compute complex numbers on cpu", dtype);
}

}  // namespace

const char* c_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return "u8";
    case DType::kInt8: return "i8";
    case DType::kInt16: return "i16";
    case DType::kInt32: return "i32";
    case DType::kInt64: return "i64";
    case DType::kFloat16: return "f16";
    case DType::kBFloat16: return "bf16";
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
    case DType::kComplex64:
    case DType::kComplex128: refuse_complex(dtype_name(dtype));
  }
  return "";
}

const char* bits_type(size_t size) {
  if (size > 8) refuse_complex("complex128");
  return size == 1 ? "u8" : size == 2 ? "u16" : size == 4 ? "u32" : "u64";
}

const char* compute_type(DType dtype) {
  if (is_complex(dtype)) refuse_complex(dtype_name(dtype));
  return !is_floating(dtype) ? "i64" : dtype == DType::kFloat64 ? "double" : "float";
}

uint64_t compute_size(DType dtype) {
  if (is_complex(dtype)) refuse_complex(dtype_name(dtype));
  return is_floating(dtype) && dtype != DType::kFloat64 ? 4 : 8;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "__uint_as_float(0x7fc00000u)";
  if (std::isinf(value)) return value > 0 ? "__uint_as_float(0x7f800000u)" : "__uint_as_float(0xff800000u)";
  return fmt::format("{:.17g}", value);
}

int64_t blocks_for(int64_t elements) { return std::min(ceil_div(elements, kThreads), kMostBlocks); }

const char* index_type(uint64_t elements) { return elements < kSmall ? "i32" : "i64"; }

uint64_t reach(const TensorSpec& spec) {
  Strides strides = spec.strides;
  for (int64_t& stride : strides) stride = std::abs(stride);
  return TensorSpec{spec.dtype, spec.shape, strides}.extent_bytes();
}

std::string reach_note(const std::string& name, const TensorSpec& spec) {
  const bool backwards = std::any_of(spec.strides.begin(), spec.strides.end(), [](int64_t s) { return s < 0; });
  return backwards ? "" : fmt::format("// {}: {} bytes\n", name, reach(spec));
}

std::string index_function(const std::string& name, const cpu::LoopNest& nest, int operand) {
  std::string text = fmt::format("__device__ inline Index {}(Index i) {{\n", name);
  if (nest.outer_rank() == 0) return text + fmt::format("  return i * {};\n}}\n", nest.inner_stride(operand));
  text +=
      fmt::format("  Index at = i % {} * {};\n  i /= {};\n", nest.inner(), nest.inner_stride(operand), nest.inner());
  for (int axis = nest.outer_rank() - 1; axis > 0; --axis) {
    text +=
        fmt::format("  at += i % {0} * {1};\n  i /= {0};\n", nest.outer_dim(axis), nest.outer_stride(operand, axis));
  }
  return text + fmt::format("  return at + i * {};\n}}\n", nest.outer_stride(operand, 0));
}

std::string index_function(const std::string& name, const Shape& shape, const Strides& strides) {
  return index_function(name, cpu::LoopNest::in_order(shape, std::array<Strides, 1>{strides}), 0);
}

Team team_for(int64_t length, bool interleaved) {
  const auto size = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(ceil_div(length, 4), 1)));
  return {std::min<int64_t>(static_cast<int64_t>(std::min<uint64_t>(size, kThreads)), interleaved ? 8 : kThreads),
          interleaved};
}

int64_t pack_of(DType dtype, int64_t size) {
  const int64_t pack = 16 / static_cast<int64_t>(dtype_size(dtype));
  return size % pack == 0 ? pack : 1;
}

Writer::Writer(const plan::KernelQuery& query, size_t inputs, int64_t elements) : query_(query) {
  inputs = std::max(inputs, query.inputs.size());
  auto most = static_cast<uint64_t>(elements);
  std::string types;
  const auto declare = [&](const char* kind, size_t i, const TensorSpec* spec) {
    types += fmt::format("typedef {} {}{};\n", spec != nullptr ? c_type(spec->dtype) : "float", kind, i);
    if (spec == nullptr) return;
    most = std::max(most, reach(*spec));
    types += reach_note(fmt::format("{}{}", *kind == 'I' ? "in" : "out", i), *spec);
  };
  parameters_ = "Failure* word, u64 ticket";
  for (size_t i = 0; i < inputs; ++i) {
    declare("In", i, i < query.inputs.size() ? &query.inputs[i] : nullptr);
    parameters_ += parameter(i, "In", true);
    operands_.push_back({Operand::From::kInput, i});
  }
  for (size_t i = 0; i < query.outputs.size(); ++i) {
    declare("Out", i, &query.outputs[i]);
    parameters_ += parameter(i, "Out", false);
    operands_.push_back({Operand::From::kOutput, i});
  }
  parameters_ += ", void* work";
  operands_.push_back({Operand::From::kWorkspace});
  index_size_ = most < kSmall ? 4 : 8;
  head_ =
      fmt::format("{}typedef {} Index;\n{}constexpr int kThreads = {};\n", kPrelude, index_type(most), types, kThreads);
}

void Writer::compute(DType dtype) { head_ += fmt::format("typedef {} C;\n", compute_type(dtype)); }

void Writer::constant(const char* name, int64_t value) {
  head_ += fmt::format("constexpr Index {} = {};\n", name, value);
}

void Writer::number(const char* name, double value) {
  head_ += fmt::format("#define {} ((C){})\n", name, number_text(value));  // infinity is no constant expression of CUDA
}

Source Writer::blocks(const char* name, int64_t blocks, const std::string& body, int per_sm) const {
  Source source;
  source.entry = fmt::format("sluice_{}{}{}", query_.op, *name == '\0' ? "" : "_", name);
  const std::string bounds = per_sm == 0 ? "" : fmt::format("__launch_bounds__({}, {}) ", kThreads, per_sm);
  source.text = fmt::format("{}extern \"C\" {}__global__ void {}({}) {{\n  if (failed(word, ticket)) return;\n{}}}\n",
                            head_, bounds, source.entry, parameters_, body);
  source.blocks = blocks;
  source.operands = operands_;
  return source;
}

Source Writer::each(const char* name, int64_t count, const std::string& body, const std::string& before) const {
  return blocks(name, blocks_for(count),
                fmt::format("{}  for (Index i = (Index)first_index(); i < {}; i += (Index)index_step()) {{\n{}  }}\n",
                            before, count, body));
}

Source Writer::teams(const char* name, int64_t units, const Team& team, const std::string& body) const {
  Writer with = *this;
  const int64_t at_once = kThreads / team.size;
  with.head_ += fmt::format("constexpr int kTeam = {}, kStride = {};\nconstexpr Index kUnits = {};\n", team.size,
                            team.interleaved ? at_once : 1, units);
  with.head_ += kTeamFunctions;
  return with.blocks(name, ceil_div(units, at_once),
                     fmt::format("  const Index unit = (Index)blockIdx.x * {} + team();\n"
                                 "  const bool inside = unit < kUnits;\n{}",
                                 at_once, body));
}

void reduce(const Writer& writer, const Reduction& r, Generated& generated) {
  const std::string first = r.first.empty() ? "begin < end ? TAKE(begin) : A()" : r.first;
  const auto stage = [&](const char* suffix, int64_t units, int64_t length, int64_t chunk, const std::string& take,
                         const std::string& finish) {
    Writer with = writer;
    with.constant("kOutputs", r.outputs);
    with.constant("kElements", length);
    with.constant("kChunk", chunk);
    with.add(fmt::format("#define TAKE(i) ({})\n", take));
    const std::string name = std::string(r.name) + suffix;
    generated.stages.push_back(with.teams(name.c_str(), units, team_for(chunk, r.by_column),
                                          R"(  const Index o = unit % kOutputs, begin = unit / kOutputs * kChunk;
  const Index end = !inside ? begin : begin + kChunk < kElements ? begin + kChunk : kElements;
  A mine = )" + first + R"(;
  Index i = begin + member();
  for (; i + 7 * kTeam < end; i += 8 * kTeam) {  // eight at a time, so that as many loads are under way
    A next[8];
    for (int k = 0; k < 8; ++k) next[k] = TAKE(i + k * kTeam);
    for (int k = 0; k < 8; ++k) mine = join(mine, next[k]);
  }
  for (; i < end; i += kTeam) mine = join(mine, TAKE(i));
  const A total = over_team(mine);
  if (inside && member() == 0) {
)" + finish + "  }\n"));
    generated.stages.back().describe = r.describe;
  };
  const int64_t team = team_for(r.length, r.by_column).size, blocks = ceil_div(r.outputs * team, kThreads);
  int64_t parts = std::min(r.length / (team * kWorthAThread), kReducingBlocks / std::max<int64_t>(blocks, 1));
  if (parts <= 1) return stage("", r.outputs, r.length, r.length, r.take, r.finish);
  const int64_t chunk = ceil_div(r.length, parts);
  parts = ceil_div(r.length, chunk);
  const uint64_t at = align_up(generated.workspace_bytes, 64);
  generated.workspace_bytes = at + static_cast<uint64_t>(parts * r.outputs) * r.size;
  const std::string partials = fmt::format("((A*)((char*)work + {}))", at);
  stage("parts", r.outputs * parts, r.length, chunk, r.take, fmt::format("    {}[unit] = total;\n", partials));
  stage("", r.outputs, parts, parts, fmt::format("{}[(i) * kOutputs + o]", partials), r.finish);
}

Source scan(const Writer& writer, const Scan& s) {
  Writer with = writer;
  with.constant("kLength", s.length);
  with.add(fmt::format("#define FIRST ({})\n#define TAKE(i) ({})\n", s.first, s.take));
  return with.teams("", s.lines, team_for(s.length, false), R"(  __shared__ A all[kThreads];
  const int t = (int)threadIdx.x;
  A carry = FIRST;
  for (Index begin = 0; begin < kLength; begin += kTeam * 4) {
    const Index own = begin + member() * 4, end = !inside ? own : own + 4 < kLength ? own + 4 : kLength;
    A mine[4], sum = FIRST;
    for (int k = 0; k < 4; ++k) {
      if (own + k < end) sum = join(sum, TAKE(own + k));
      mine[k] = sum;
    }
    __syncthreads();
    all[t] = sum;
    __syncthreads();
    for (int step = 1; step < kTeam; step *= 2) {
      const A left = all[member() >= step ? t - step : t];
      __syncthreads();
      if (member() >= step) all[t] = join(left, all[t]);
      __syncthreads();
    }
    const A before = member() > 0 ? join(carry, all[t - 1]) : carry;
    for (int k = 0; k < 4; ++k) {
      if (own + k >= end) continue;
      const Index i = own + k;
      const A total = join(before, mine[k]);
)" + s.put + R"(    }
    carry = join(carry, all[t - member() + kTeam - 1]);
  }
)");
}

namespace {

// The sums of a tile over a part of k. `put` takes each, as z.
std::string tile_of_product(const Product& p, const std::string& put) {
  return R"(  constexpr int kEach = kTile / 16;
  constexpr Index kDown = (kM + kTile - 1) / kTile, kAcross = (kN + kTile - 1) / kTile;
  __shared__ C as[kDepth][kTile + 1];
  __shared__ C bs[kDepth][kTile + 1];
  const Index spot = blockIdx.x % (kDown * kAcross), batch = blockIdx.x / (kDown * kAcross);
  const Index g = batch % kBatch, part = batch / kBatch;
  const Index m0 = spot / kAcross * kTile, n0 = spot % kAcross * kTile;
  const Index end = (part + 1) * kShare < kK ? (part + 1) * kShare : kK;
  const int t = (int)threadIdx.x, down = kZByRow ? t / 16 : t % 16, across = kZByRow ? t % 16 : t / 16;
  C sums[kEach][kEach] = {};
  for (Index k0 = part * kShare; k0 < end; k0 += kDepth) {
    for (int e = t; e < kTile * kDepth; e += kThreads) {
      const int r = kAByRow ? e / kDepth : e % kTile, d = kAByRow ? e % kDepth : e / kTile;
      const Index m = m0 + r, k = k0 + d;
      as[d][r] = m < kM && k < end ? )" +
         p.a + R"( : (C)0;
    }
    for (int e = t; e < kTile * kDepth; e += kThreads) {
      const int r = kBByRow ? e % kTile : e / kDepth, d = kBByRow ? e / kTile : e % kDepth;
      const Index n = n0 + r, k = k0 + d;
      bs[d][r] = n < kN && k < end ? )" +
         p.b + R"( : (C)0;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      C a[kEach], b[kEach];
      for (int j = 0; j < kEach; ++j) {
        a[j] = as[d][down + 16 * j];
        b[j] = bs[d][across + 16 * j];
      }
      for (int p = 0; p < kEach; ++p)
        for (int q = 0; q < kEach; ++q) sums[p][q] += a[p] * b[q];
    }
    __syncthreads();
  }
  for (int p = 0; p < kEach; ++p) {
    for (int q = 0; q < kEach; ++q) {
      const Index m = m0 + down + 16 * p, n = n0 + across + 16 * q;
      if (m >= kM || n >= kN) continue;
      const C z = sums[p][q];
      )" +
         put + R"(    }
  }
)";
}

// Adds up what the parts of k have given.
void add_parts(const Writer& writer, const Product& p, int64_t parts, const std::string& partials,
               Generated& generated) {
  Writer with = writer;
  with.add("struct A { C v; };\n__device__ inline A join(A a, A b) { return A{a.v + b.v}; }\n");
  reduce(with,
         {.name = "join",
          .outputs = p.batch * p.m * p.n,
          .length = parts,
          .by_column = true,
          .first = "A{0}",
          .take = fmt::format("A{{{}[(i) * kOutputs + o]}}", partials),
          .finish = "    const Index n = o % kN, m = o / kN % kM, g = o / kN / kM;\n"
                    "    const C z = total.v;\n    " +
                    p.put,
          .size = p.size},
         generated);
}

}  // namespace

void multiply(const Writer& writer, const Product& p, Generated& generated) {
  const int64_t tile = std::min(p.m, p.n) > 32 ? 64 : 32;
  const int64_t tiles = p.batch * ceil_div(p.m, tile) * ceil_div(p.n, tile);
  int64_t parts = std::clamp<int64_t>(std::min(p.k / 512, kEnoughBlocks / std::max<int64_t>(tiles, 1)), 1, kMostParts);
  const int64_t chunk = std::max<int64_t>(ceil_div(p.k, parts), 1);
  parts = std::max<int64_t>(ceil_div(p.k, chunk), 1);
  Writer with = writer;
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"kBatch", p.batch},
                                    {"kM", p.m},
                                    {"kN", p.n},
                                    {"kK", p.k},
                                    {"kShare", chunk},
                                    {"kTile", tile},
                                    {"kDepth", 16}}) {
    with.constant(name, value);
  }
  for (const auto& [name, value] :
       {std::pair{"kAByRow", p.a_by_row}, std::pair{"kBByRow", p.b_by_row}, std::pair{"kZByRow", p.z_by_row}}) {
    with.constant(name, value ? 1 : 0);
  }
  const uint64_t at = align_up(generated.workspace_bytes, 64);
  const std::string partials = fmt::format("((C*)((char*)work + {}))", at);
  const std::string put = parts == 1 ? p.put : partials + "[((part * kBatch + g) * kM + m) * kN + n] = z;\n";
  generated.stages.push_back(with.blocks(parts == 1 ? "" : "parts", tiles * parts, tile_of_product(p, put)));
  if (parts == 1) return;
  generated.workspace_bytes = at + static_cast<uint64_t>(parts * p.batch * p.m * p.n) * p.size;
  add_parts(with, p, parts, partials, generated);
}

}  // namespace sluice::cuda
