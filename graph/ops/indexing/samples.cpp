#include "graph/ops/samples.h"

#include "base/files/packed_files.h"
#include "graph/ops/common.h"

namespace sluice::ops {
namespace {

// All operands and results are whole on every device.
template <size_t kOutputs>
std::vector<SbpRow> whole_sbp(Types inputs, const Attrs&) {
  return {{std::vector<Sbp>(inputs.size(), Sbp::broadcast()), std::vector<Sbp>(kOutputs, Sbp::broadcast())}};
}

const OpDef sample_order_def{
    .name = "sample_order",
    .doc =
        "The next samples of a training: ids, int64 (size), and a key for each, int64 (size, 2), from which all that "
        "is random about it may be drawn. `place`: int64 (), how many samples of all epochs came before. An epoch has "
        "`length` samples on each of `world` ranks, every world-th of `whole` from the rank-th on; it begins behind "
        "`skipped` of all `count` samples, in their order or, if `shuffled`, in one drawn from `seed` and the number "
        "of "
        "the epoch. Sample `end` of all epochs and those behind it are not there: their ids are -1, their keys 0. end "
        "= "
        "-1: they never end.",
    .inputs = {"place"},
    .params = {{.name = "size", .default_value = int64_t{1}, .required = true},
               {.name = "count", .default_value = int64_t{1}, .required = true},
               {.name = "length", .default_value = int64_t{1}, .required = true},
               {.name = "whole", .default_value = int64_t{1}, .required = true},
               {.name = "skipped", .default_value = int64_t{0}},
               {.name = "rank", .default_value = int64_t{0}},
               {.name = "world", .default_value = int64_t{1}},
               {.name = "seed", .default_value = int64_t{0}},
               {.name = "shuffled", .default_value = false},
               {.name = "end", .default_value = int64_t{-1}}},
    .num_outputs = 2,
    .infer = [](Types in, Present, const Attrs& attrs) -> std::vector<TensorType> {
      const auto at = [&](size_t i) { return attr<int64_t>(attrs, i); };
      const int64_t size = at(0), count = at(1), length = at(2), whole = at(3), skipped = at(4), world = at(6);
      SLUICE_CHECK_KIND(kType, in[0].dtype == DType::kInt64 && in[0].shape.rank() == 0, "place: is {}; must be int64()",
                        in[0].str());
      SLUICE_CHECK(size >= 0, "size: {}; must not be negative", size);
      SLUICE_CHECK(length >= 1 && whole >= 1, "length: {} of {} samples; must be at least 1", length, whole);
      SLUICE_CHECK(skipped >= 0 && whole <= count && skipped <= count - whole,
                   "skipped: {} and {} more of {} samples; must not be more than there are", skipped, whole, count);
      SLUICE_CHECK(world >= 1 && at(5) >= 0 && at(5) < world, "rank: {} of {}; must be one of them", at(5), world);
      return {{DType::kInt64, Shape{size}}, {DType::kInt64, Shape{size, 2}}};
    },
    .grad = [](const GradContext&) -> std::vector<Value> { return {Value()}; },
    .sbp = whole_sbp<2>,
    .samples =
        [] {
          const SampleInput place{.shape = {}, .dtype = DType::kInt64, .low = 0, .high = 40};
          const auto attrs = [](int64_t size, bool shuffled, int64_t end) {
            return Attrs{size,       int64_t{11}, int64_t{4}, int64_t{8}, int64_t{2},
                         int64_t{1}, int64_t{2},  int64_t{7}, shuffled,   end};
          };
          return std::vector<Sample>{{.inputs = {place}, .attrs = attrs(5, false, -1)},
                                     {.inputs = {place}, .attrs = attrs(9, true, 30)},
                                     {.inputs = {place}, .attrs = attrs(0, true, -1)}};
        }()};

const OpDef pack_files_def{
    .name = "pack_files",
    .doc =
        "Names of files as decode_image takes them (io.pack): uint8. `names`: uint8, all names in one run of bytes, "
        "and "
        "`ends`: int64, where each ends. `files`: int64 (N), which of them each sample is read from; -1: none, it is "
        "not "
        "there. `places`: int64 (N, 2), of a part of the file -1 - its offset, and its length; without, files are read "
        "whole. `longest`: bytes of the longest name.",
    .inputs = {"names", "ends", "files", "places?"},
    .params = {{.name = "longest", .default_value = int64_t{1}, .required = true}},
    .infer = [](Types in, Present present, const Attrs& attrs) -> std::vector<TensorType> {
      const int64_t longest = attr<int64_t>(attrs, 0);
      SLUICE_CHECK(longest >= 0, "longest: {}; must not be negative", longest);
      SLUICE_CHECK_KIND(kType, in[0].dtype == DType::kUInt8 && in[0].shape.rank() == 1,
                        "names: is {}; must be bytes, uint8 of one axis", in[0].str());
      for (const size_t i : {1, 2})
        SLUICE_CHECK_KIND(kType, in[i].dtype == DType::kInt64 && in[i].shape.rank() == 1,
                          "{}: is {}; must be int64 of one axis", i == 1 ? "ends" : "files", in[i].str());
      const int64_t n = in[2].shape[0];
      SLUICE_CHECK_KIND(kType, !present[3] || (in[3].dtype == DType::kInt64 && in[3].shape == Shape{n, 2}),
                        "places: is {}; must be int64({}, 2)", in[3].str(), n);
      const TensorType out{DType::kUInt8, Shape{n, PackedFile::kHeadBytes + longest}};
      return {{DType::kUInt8, Shape{numel(out.shape)}}};
    },
    .grad = [](const GradContext&) -> std::vector<Value> {
      return {Value(), Value(), Value(), Value()};
    },
    .sbp = whole_sbp<1>,
    .samples =
        [] {
          const SampleInput names{.shape = {12}, .dtype = DType::kUInt8, .low = 97, .high = 122},
              ends{.shape = {3}, .dtype = DType::kInt64, .low = 12, .high = 12},
              files{.shape = {4}, .dtype = DType::kInt64, .low = -1, .high = 2},
              places{.shape = {4, 2}, .dtype = DType::kInt64, .low = 0, .high = 9};
          return std::vector<Sample>{{.inputs = {names, ends, files, kAbsent}, .attrs = {int64_t{12}}},
                                     {.inputs = {names, ends, files, places}, .attrs = {int64_t{20}}}};
        }()};

}  // namespace

std::span<const OpDef* const> samples_ops() {
  static const OpDef* const ops[] = {&sample_order_def, &pack_files_def};
  return ops;
}

}  // namespace sluice::ops
