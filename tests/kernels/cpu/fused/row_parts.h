#pragma once
// The parts of a kernel of rows, made of a body that has values with every home.
#include "kernels/cpu/fused/row_places.h"
#include "kernels/kernel_runner.h"

namespace sluice {

// Inputs: the rows, a line that every row reads, and one element for each row. Outputs: elements, and the sums.
inline AttrGraph body_with_every_home() {
  const NamedAttrs last = {{"dim", Ints{-1}}, {"keepdim", true}};
  return {3,
          {{"amax", last, {0}},
           {"abs", {}, {0}},
           {"sum", last, {4}},
           {"sub", {}, {0, 3}},
           {"exp", {}, {6}},
           {"sum", last, {7}},
           {"div", {}, {7, 8}},
           {"mul", {}, {9, 1}},
           {"add", {}, {10, 2}},
           {"add", {}, {11, 5}}},
          {12, 8}};
}

struct RowParts {
  // `alone`: steps take one row at a time.
  RowParts(const plan::KernelQuery& q, bool alone, int threads)
      : lines(q),
        program(get_attr<AttrGraph>(q.attrs, "body"), std::vector<DType>(q.inputs.size(), DType::kFloat32),
                {false, false, true}, alone),
        inputs(q, lines),
        blocks(program, inputs, threads),
        places(program, inputs, blocks) {}
  RowParts(const RowParts&) = delete;
  RowParts& operator=(const RowParts&) = delete;

  const cpu::RowLines lines;
  const cpu::RowProgram program;
  const cpu::RowInputs inputs;
  const cpu::RowBlocks blocks;
  const cpu::RowPlaces places;
};

inline plan::KernelQuery rows_query(const TensorSpec& x, const TensorSpec& line, const TensorSpec& row) {
  return {.op = "fused_rows",
          .attrs = {{"body", body_with_every_home()}},
          .inputs = {x, line, row},
          .outputs = {dense(x.shape), dense(row.shape)},
          .device = {}};
}

// A case: rows, whose elements or the rows themselves may lie apart, and how they are computed.
struct RowPartsCase {
  int64_t rows, length;
  bool alone;
  int threads;
  bool apart;

  plan::KernelQuery query() const {
    const auto spec = [&](const Shape& shape) { return apart ? scrambled(shape) : dense(shape); };
    const bool two_axes = rows > 0 && rows % 2 == 0;  // around rows: where these lie apart, they are no line
    const auto around = [&](int64_t last) { return two_axes ? Shape{2, rows / 2, last} : Shape{rows, last}; };
    return rows_query(spec(around(length)), spec({length}), spec(around(1)));
  }
  std::string str() const {
    return fmt::format("{} rows of {}, {}, {} threads, {}", rows, length, alone ? "alone" : "together", threads,
                       apart ? "apart" : "dense");
  }
};

inline std::vector<RowPartsCase> row_parts_cases() {
  std::vector<RowPartsCase> cases;
  for (const int threads : {1, 2, 5}) {
    for (const bool apart : {false, true}) {
      for (const int64_t rows : {0, 1, 3, 64, 700})
        for (const int64_t length : {1, 7, 192}) cases.push_back({rows, length, false, threads, apart});
      for (const auto& [rows, length] : {std::pair{0, 300},
                                         {1, 193},
                                         {9, 1000},
                                         {300, 600},
                                         {5, 1025},
                                         {5, 4096},
                                         {2, 4097},
                                         {3, 70001},
                                         {20, 9000}})
        cases.push_back({rows, length, true, threads, apart});
    }
  }
  return cases;
}

}  // namespace sluice
