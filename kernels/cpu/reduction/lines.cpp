// argsort, running_argmax, running_argmin, linear_recurrence: a line along an axis after the other, each on one thread.
#include "kernels/cpu/reduction/lines.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/cpu/families.h"
#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/strides/tiles.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

const char* input(const KernelArgs& args, int i, int64_t offset) {
  return static_cast<const char*>(args.inputs[i]) + offset;
}

template <class T>
bool is_nan(T a) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return a != a;
}

// A number that is ordered as elements are: equal ones have equal keys, and NaN the largest. REQUIRES: Key is as wide
// as the elements' dtype.
template <class Key, class T>
Key key_of(T v) {
  constexpr Key kTop = Key{1} << (8 * sizeof(Key) - 1);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<Key>(v) ^ kTop;
  } else {
    if (is_nan(v)) return ~Key{0};
    using Float = std::conditional_t<sizeof(Key) == 4, float, double>;
    const Key bits = std::bit_cast<Key>(static_cast<Float>(v) + Float(0));  // -0 is 0
    return bits & kTop ? ~bits : bits | kTop;
  }
}

// A key with where it was, which decides between equal ones: any order of entries is stable.
struct NarrowEntry {
  using Key = uint32_t;
  NarrowEntry() = default;
  NarrowEntry(Key key, int64_t index) : both(static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(index)) {}
  Key digits() const { return static_cast<Key>(both >> 32); }
  int64_t index() const { return static_cast<int64_t>(both & 0xffffffff); }
  bool operator<(const NarrowEntry& other) const { return both < other.both; }
  uint64_t both;
};
struct WideEntry {
  using Key = uint64_t;
  WideEntry() = default;
  WideEntry(Key k, int64_t i) : key(k), at(i) {}
  Key digits() const { return key; }
  int64_t index() const { return at; }
  bool operator<(const WideEntry& other) const { return key != other.key ? key < other.key : at < other.at; }
  Key key;
  int64_t at;
};

constexpr int64_t kFewEntries = 192;  // which are compared

// Sorts entries that come in the order of their places, digit by digit from the lowest; digits that all of them share
// cost nothing. Returns where they are then: in `entries` or in `spare`.
template <class Entry>
Entry* sort_by_digits(Entry* entries, Entry* spare, int64_t n) {
  constexpr int kDigits = sizeof(typename Entry::Key), kValues = 256;
  const auto digit = [](const Entry& e, int d) { return static_cast<size_t>(e.digits() >> (8 * d) & 0xff); };
  uint32_t counts[kDigits][kValues] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < kDigits; ++d) ++counts[d][digit(entries[i], d)];
  for (int d = 0; d < kDigits; ++d) {
    uint32_t* places = counts[d];
    if (places[digit(entries[0], d)] == static_cast<uint64_t>(n)) continue;
    uint32_t before = 0;
    for (int v = 0; v < kValues; ++v) before += std::exchange(places[v], before);
    for (int64_t i = 0; i < n; ++i) spare[places[digit(entries[i], d)]++] = entries[i];
    std::swap(entries, spare);
  }
  return entries;
}

// Elements [first, first + count) of the sorted line. The workspace has the entries of a line per task, and as many to
// sort them by digits.
template <class T, class Entry>
class Argsort final : public PreparedKernel {
 public:
  Argsort(const plan::KernelQuery& q, int threads)
      : lines_(q),
        descending_(get_attr<bool>(q.attrs, "descending")),
        first_(integer_or(q.attrs, "first", 0)),
        count_(lines_.length() > 0
                   ? q.outputs[0]
                         .shape[normalize_axis(get_attr<int64_t>(q.attrs, "dim"), q.outputs[0].shape.rank(), "argsort")]
                   : 0),
        threads_(threads),
        tasks_(std::min<int64_t>(lines_.count(), 4 * std::max(threads, 1))),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))) {
    by_digits_ = count_ == lines_.length() && count_ > kFewEntries && count_ < int64_t{1} << 32;
    slot_ = (by_digits_ ? 2 : 1) * lines_.length();
    workspace_bytes_ = static_cast<uint64_t>(tasks_ * slot_) * sizeof(Entry);
  }

  void run(const KernelArgs& args) const override {
    const int64_t n = lines_.length(), in_step = lines_.step(0), out_step = lines_.step(1);
    using Key = typename Entry::Key;
    const Key turn = descending_ ? ~Key{0} : Key{0};
    lines_.for_each_of_tasks(threads_, tasks_, [&](int64_t task, const auto& at) {
      Entry* entries = static_cast<Entry*>(args.workspace) + task * slot_;
      T tile[kTile];
      for (int64_t begin = 0; begin < n; begin += kTile) {
        const int64_t m = std::min(kTile, n - begin);
        load_(input(args, 0, at[0] + lines_.bytes(0, begin * in_step)), in_step, tile, m);
        for (int64_t i = 0; i < m; ++i) entries[begin + i] = Entry(key_of<Key>(tile[i]) ^ turn, begin + i);
      }
      if (by_digits_)
        entries = sort_by_digits(entries, entries + n, n);
      else
        order(entries, entries + n);
      int64_t* out = reinterpret_cast<int64_t*>(static_cast<char*>(args.outputs[0]) + at[1]);
      for (int64_t i = 0; i < count_; ++i) out[i * out_step] = entries[first_ + i].index();
    });
  }

 private:
  static int64_t integer_or(const NamedAttrs& attrs, std::string_view name, int64_t fallback) {
    for (const auto& [key, value] : attrs)
      if (key == name) return std::get<int64_t>(value);
    return fallback;
  }

  void order(Entry* begin, Entry* end) const {
    const int64_t n = end - begin;
    if (count_ == n) return std::sort(begin, end);
    if (first_ == 0 && count_ <= n / 16) return std::partial_sort(begin, begin + count_, end);
    if (first_ > 0) std::nth_element(begin, begin + first_, end);
    if (first_ + count_ < n) std::nth_element(begin + first_, begin + first_ + count_, end);
    std::sort(begin + first_, begin + first_ + count_);
  }

  const Lines lines_;
  const bool descending_;
  const int64_t first_, count_;
  const int threads_;
  const int64_t tasks_;
  const LoadFn load_;
  bool by_digits_ = false;
  int64_t slot_ = 0;  // entries of a task
};
template <class T>
using NarrowArgsort = Argsort<T, NarrowEntry>;
template <class T>
using WideArgsort = Argsort<T, WideEntry>;

template <class T>
class RunningExtremum final : public PreparedKernel {
 public:
  RunningExtremum(const plan::KernelQuery& q, bool maximum, int threads)
      : lines_(q),
        maximum_(maximum),
        threads_(threads),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))) {}

  void run(const KernelArgs& args) const override {
    lines_.for_each(threads_, [&](int64_t, const auto& at) {
      T tile[kTile];
      T best{};
      int64_t best_at = -1;
      int64_t* out = reinterpret_cast<int64_t*>(static_cast<char*>(args.outputs[0]) + at[1]);
      for (int64_t done = 0; done < lines_.length(); done += kTile) {
        const int64_t m = std::min(kTile, lines_.length() - done), step = lines_.step(0);
        load_(input(args, 0, at[0] + lines_.bytes(0, done * step)), step, tile, m);
        for (int64_t i = 0; i < m; ++i) {
          const T v = tile[i];
          const bool wins = best_at < 0 || is_nan(v) || (!is_nan(best) && (maximum_ ? v >= best : v <= best));
          if (wins) best = v, best_at = done + i;
          out[(done + i) * lines_.step(1)] = best_at;
        }
      }
    });
  }

 private:
  const Lines lines_;
  const bool maximum_;
  const int threads_;
  const LoadFn load_;
};

// Neighbouring lines are taken a row after the other; other lines several at once, since each step of a line waits for
// the last.
template <class T>
class LinearRecurrence final : public PreparedKernel {
 public:
  LinearRecurrence(const plan::KernelQuery& q, int threads)
      : lines_(q),
        adds_(q.inputs[0].shape == q.inputs[1].shape),
        is_tile_(is_tile(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))),
        threads_(threads),
        load_(tile_load(q.inputs[0].dtype, tile_type(q.inputs[0].dtype))),
        store_(tile_store(tile_type(q.inputs[0].dtype), q.outputs[0].dtype)) {}

  void run(const KernelArgs& args) const override { adds_ ? run_as<true>(args) : run_as<false>(args); }

 private:
  using Total = std::conditional_t<kIsComplex<T>, std::complex<double>,
                                   std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, double>>;
  using Places = std::array<int64_t, kMaxOperands>;  // of a line in its operands, in bytes
  // With more lines abreast, whose elements often lie whole pages apart, the first-level cache cannot hold the next
  // ones.
  static constexpr int64_t kAbreast = 4, kPiece = 256;

  // kAdds: of all elements of b; else the first of a line is all there is.
  template <bool kAdds>
  void run_as(const KernelArgs& args) const {
    if (lines_.neighbours())
      return lines_.for_each_panel(threads_, kTile,
                                   [&](const auto& at, int64_t lines) { panel<kAdds>(args, at, lines); });
    const int64_t tasks = std::min<int64_t>(lines_.count(), 4 * std::max(threads_, 1));
    lines_.for_each_group_of_tasks(threads_, tasks, kAbreast,
                                   [&](int64_t, const auto& group) { abreast<kAdds>(args, group); });
  }

  template <bool kAdds>
  static Total next(T a, Total y, T b) {
    const Total carried = product(static_cast<Total>(a), y);
    if constexpr (kAdds)
      return carried + static_cast<Total>(b);
    else
      return carried;
  }

  const char* in(const KernelArgs& args, int operand, const Places& at, int64_t i) const {
    return input(args, operand, at[operand] + lines_.bytes(operand, i * lines_.step(operand)));
  }
  char* out(const KernelArgs& args, const Places& at, int64_t i) const {
    return static_cast<char*>(args.outputs[0]) + at[2] + lines_.bytes(2, i * lines_.step(2));
  }

  // m elements of a line from element i on: where they lie, or loaded into `space`.
  const T* elements(const KernelArgs& args, int operand, const Places& at, int64_t i, int64_t m, T* space) const {
    if (direct(operand)) return reinterpret_cast<const T*>(in(args, operand, at, i));
    load_(in(args, operand, at, i), lines_.step(operand), space, m);
    return space;
  }
  bool direct(int operand) const { return is_tile_ && lines_.step(operand) == 1; }

  // Fewer lines than kAbreast: the last one is computed several times, and is the same each time.
  template <bool kAdds>
  void abreast(const KernelArgs& args, const std::vector<Places>& group) const {
    T of_a[kAbreast][kPiece], of_b[kAbreast][kPiece], made[kAbreast][kPiece];
    const T *a[kAbreast], *b[kAbreast] = {};
    T* to[kAbreast];
    Total y[kAbreast] = {};
    for (int64_t done = 0; done < lines_.length(); done += kPiece) {
      const int64_t m = std::min(kPiece, lines_.length() - done), first = done == 0 ? 1 : 0;
      for (size_t l = 0; l < kAbreast; ++l) {
        const Places& at = group[std::min(l, group.size() - 1)];
        a[l] = elements(args, 0, at, done, m, of_a[l]);
        if (kAdds || first) b[l] = elements(args, 1, at, done, kAdds ? m : 1, of_b[l]);
        to[l] = direct(2) ? reinterpret_cast<T*>(out(args, at, done)) : made[l];
        if (first) y[l] = static_cast<Total>(to[l][0] = b[l][0]);
      }
      for (int64_t i = first; i < m; ++i) [&]<size_t... L>(std::index_sequence<L...>) {
          ((y[L] = next<kAdds>(a[L][i], y[L], kAdds ? b[L][i] : T(0)), to[L][i] = static_cast<T>(y[L])), ...);
        }
      (std::make_index_sequence<kAbreast>());
      for (size_t l = 0; l < group.size() && !direct(2); ++l)
        store_(made[l], out(args, group[l], done), lines_.step(2), m);
    }
  }

  template <bool kAdds>
  void panel(const KernelArgs& args, const Places& at, int64_t lines) const {
    T a[kTile], b[kTile];
    Total y[kTile];
    for (int64_t i = 0; i < lines_.length(); ++i) {
      if (kAdds || i == 0) load_(in(args, 1, at, i), 1, b, lines);
      if (i == 0) {
        for (int64_t k = 0; k < lines; ++k) y[k] = static_cast<Total>(a[k] = b[k]);
      } else {
        load_(in(args, 0, at, i), 1, a, lines);
        for (int64_t k = 0; k < lines; ++k) {
          y[k] = next<kAdds>(a[k], y[k], b[k]);
          a[k] = static_cast<T>(y[k]);
        }
      }
      store_(a, out(args, at, i), 1, lines);
    }
  }

  const Lines lines_;
  const bool adds_, is_tile_;
  const int threads_;
  const LoadFn load_;
  const StoreFn store_;
};

template <class T>
std::unique_ptr<PreparedKernel> make_recurrence(const plan::KernelQuery& q, int threads) {
  return std::make_unique<LinearRecurrence<T>>(q, threads);
}

// The kernel computed in the type of the first operand's tiles.
template <template <class> class Kernel, class... Args>
std::unique_ptr<PreparedKernel> typed(const plan::KernelQuery& q, Args... args) {
  switch (tile_type(q.inputs.at(0).dtype)) {
    case TileType::kFloat: return std::make_unique<Kernel<float>>(q, args...);
    case TileType::kDouble: return std::make_unique<Kernel<double>>(q, args...);
    case TileType::kComplexFloat:
    case TileType::kComplexDouble:
      fail(ErrorKind::kUnsupported, "{}: no cpu kernel for {}; complex numbers have no order", q.op,
           dtype_name(q.inputs[0].dtype));
    default: return std::make_unique<Kernel<int64_t>>(q, args...);
  }
}

}  // namespace

void add_line_kernels(KernelTable& table) {
  const auto add = [&](const char* op, PrepareFn prepare) {
    table.add(DeviceKind::kCpu,
              {.op = op, .prepare = std::move(prepare), .layouts = [](const plan::KernelQuery& q) {
                 return plan::LayoutPreference{std::vector(q.inputs.size(), plan::Layout::kAny), {plan::Layout::kAny}};
               }});
  };
  add("argsort", [](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
    const TensorSpec& x = q.inputs.at(0);
    const bool narrow = dtype_size(x.dtype) <= 4 && numel(x.shape) <= int64_t{1} << 32;
    return narrow ? typed<NarrowArgsort>(q, context.threads) : typed<WideArgsort>(q, context.threads);
  });
  for (const bool maximum : {true, false})
    add(maximum ? "running_argmax" : "running_argmin",
        [maximum](const plan::KernelQuery& q, const PrepareContext& context) {
          return typed<RunningExtremum>(q, maximum, context.threads);
        });
  add("linear_recurrence",
      [](const plan::KernelQuery& q, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
        switch (q.inputs.at(0).dtype) {
          case DType::kComplex64: return make_recurrence<std::complex<float>>(q, context.threads);
          case DType::kComplex128: return make_recurrence<std::complex<double>>(q, context.threads);
          default: return typed<LinearRecurrence>(q, context.threads);
        }
      });
}

}  // namespace sluice::cpu
