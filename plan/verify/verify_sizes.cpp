// Sizes: overflow-checked, views within their bases, buffers within their arenas.
#include "plan/verify.h"

namespace sluice::plan {
namespace {

class Sizes {
 public:
  Sizes(const Plan& plan, VerifyReport& report) : plan_(plan), report_(report) {}

  void run() {
    uint64_t total = 0;
    for (const Arena& a : plan_.arenas) {
      guarded("arena '" + a.name + "'", [&] { total = checked_add(total, align_up(a.bytes, kAlignment)); });
      if (a.lower_bound > a.bytes)
        problem("arena '{}': lower bound {} exceeds its {} bytes", a.name, a.lower_bound, a.bytes);
    }
    for (const Buffer& b : plan_.buffers) {
      const Arena& arena = plan_.arenas[b.arena];
      if (b.offset % kAlignment != 0) {
        problem("buffer '{}': offset {}; must be a multiple of {}", b.name, b.offset, kAlignment);
      }
      if (b.offset > arena.bytes || b.bytes > arena.bytes - b.offset) {
        problem("buffer '{}': {} bytes at offset {} leave arena '{}' of {} bytes", b.name, b.bytes, b.offset,
                arena.name, arena.bytes);
      }
    }
    for (const Variable& v : plan_.variables) {
      const std::string where = "variable '" + v.name + "'";
      if (spec(where, v.spec)) {
        guarded(where, [&] { total = checked_add(total, align_up(extent_bytes(v.spec), kAlignment)); });
      }
    }
    for (const PackedCopy& p : plan_.packed) {
      const std::string where = "packed copy '" + p.name + "'";
      guarded(where, [&] { total = checked_add(total, align_up(p.bytes, kAlignment)); });
      if (!p.derived || !spec(where, p.derived->spec)) continue;
      const TensorSpec& made = p.derived->spec;
      if (!is_contiguous(made.shape, made.strides))
        problem("{}: derived with strides {}; must be contiguous", where, made.strides.str());
      if (p.format.empty() && p.bytes < extent_bytes(made))
        problem("{}: {} bytes; what is derived has {}", where, p.bytes, extent_bytes(made));
    }
    for (const Register& r : plan_.registers) {
      for (const int slot : r.slots) {
        const Buffer& b = plan_.buffers[slot];
        if (b.bytes < r.bytes)
          problem("register '{}': slot '{}' has {} bytes; needs {}", r.name, b.name, b.bytes, r.bytes);
        if (plan_.arenas[b.arena].space != plan_.arenas[plan_.buffers[r.slots[0]].arena].space) {
          problem("register '{}': its slots lie in different memory spaces; all must lie in one", r.name);
        }
      }
    }
    for (const Kernel& k : plan_.kernels) {
      const std::string where = "kernel '" + k.name + "'";
      for (const View& v : k.inputs) {
        if (!is_absent(v)) {
          view(where, v);
        } else if (v.spec.shape.rank() != 0 || v.spec.strides.rank() != 0 || v.offset != 0) {
          problem("{}: an absent input has shape {}; one that is absent has no shape, strides or offset", where,
                  v.spec.shape.str());
        }
      }
      for (const View& v : k.outputs) view(where, v);
      if (!(k.cost_ns >= 0 && k.cost_ns < 1e18))
        problem("{}: cost is {} ns; must be finite and not negative", where, k.cost_ns);
    }
    for (const Input& i : plan_.inputs) view("input '" + i.name + "'", {BaseKind::kRegister, i.reg, 0, 0, i.spec});
    for (const Output& o : plan_.outputs) view("output '" + o.name + "'", o.view);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back({"sizes", fmt::format(format, std::forward<Args>(args)...)});
  }
  // Runs size arithmetic; an overflow becomes a problem.
  template <class Compute>
  bool guarded(const std::string& where, Compute compute) {
    try {
      compute();
      return true;
    } catch (const Error& e) {
      problem("{}: {}", where, e.what());
      return false;
    }
  }
  bool spec(const std::string& where, const TensorSpec& s) {
    if (s.strides.rank() != s.shape.rank()) {
      problem("{}: shape {} has {} dims and strides {} have {}; must be equally many", where, s.shape.str(),
              s.shape.rank(), s.strides.str(), s.strides.rank());
      return false;
    }
    for (const int64_t stride : s.strides) {
      if (stride < 0) {
        problem("{}: strides {}; must not be negative", where, s.strides.str());
        return false;
      }
    }
    return guarded(where, [&] { extent_bytes(s); });
  }
  // TensorSpec::extent_bytes() with every step checked; REQUIRES: strides not negative, one per dim.
  static uint64_t extent_bytes(const TensorSpec& s) {
    if (numel(s.shape) == 0) return 0;
    uint64_t elements = 1;  // up to the one addressed last
    for (int i = 0; i < s.shape.rank(); ++i) {
      elements = checked_add(elements,
                             checked_mul(static_cast<uint64_t>(s.shape[i] - 1), static_cast<uint64_t>(s.strides[i])));
    }
    return checked_mul(elements, dtype_size(s.dtype));
  }
  void view(const std::string& where, const View& v) {
    if (!spec(where, v.spec)) return;
    uint64_t bytes = 0;
    const std::string* name = nullptr;
    switch (v.base) {
      case BaseKind::kBuffer:
        bytes = plan_.buffers[v.index].bytes;
        name = &plan_.buffers[v.index].name;
        break;
      case BaseKind::kRegister:
        bytes = plan_.registers[v.index].bytes;
        name = &plan_.registers[v.index].name;
        break;
      case BaseKind::kVariable: {
        const Variable& variable = plan_.variables[v.index];
        const PackedCopy* const copy = v.packed >= 0 ? &plan_.packed[v.packed] : nullptr;
        const bool derived = copy != nullptr && copy->derived;
        const TensorSpec& whole = derived ? copy->derived->spec : variable.spec;
        if (derived && v.spec.dtype != whole.dtype)
          problem("{}: reads packed copy '{}' as {}; it holds {}", where, copy->name, dtype_name(v.spec.dtype),
                  dtype_name(whole.dtype));
        if (!guarded(where, [&] { bytes = extent_bytes(whole); })) return;
        name = derived ? &copy->name : &variable.name;
        break;
      }
    }
    const uint64_t extent = extent_bytes(v.spec);
    if (v.offset > bytes || extent > bytes - v.offset) {
      std::string fix;
      if (v.base == BaseKind::kRegister && v.offset <= UINT64_MAX - extent)
        fix = fmt::format("; each of its slots, {} by quota, must have {}", plan_.registers[v.index].quota,
                          v.offset + extent);
      problem("{}: a view of {} bytes at offset {} leaves {} '{}' of {} bytes{}", where, extent, v.offset,
              base_kind_name(v.base), *name, bytes, fix);
    }
    if (v.offset % dtype_size(v.spec.dtype) != 0) {
      problem("{}: offset {} is not a multiple of {}'s size", where, v.offset, dtype_name(v.spec.dtype));
    }
  }

  const Plan& plan_;
  VerifyReport& report_;
};

}  // namespace

void verify_sizes(const Plan& plan, VerifyReport& report) { Sizes(plan, report).run(); }

}  // namespace sluice::plan
