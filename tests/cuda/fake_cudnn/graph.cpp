#include "cuda/fake_cudnn/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/dtype.h"

namespace fake_cudnn {
namespace {

using sluice::BFloat16;
using sluice::Float16;
using Values = std::vector<double>;  // of a tensor, in the order of its dims

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

double load(cudnnDataType_t type, const std::byte* at) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return read<float>(at);
    case CUDNN_DATA_DOUBLE: return read<double>(at);
    case CUDNN_DATA_HALF: return sluice::to_float(read<Float16>(at));
    default: return sluice::to_float(read<BFloat16>(at));
  }
}

void store(cudnnDataType_t type, std::byte* at, double value) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof(v)); };
  switch (type) {
    case CUDNN_DATA_FLOAT: return put(static_cast<float>(value));
    case CUDNN_DATA_DOUBLE: return put(value);
    case CUDNN_DATA_HALF: return put(sluice::to_float16(static_cast<float>(value)));
    default: return put(sluice::to_bfloat16(static_cast<float>(value)));
  }
}

cudnnDataType_t type_of(const Descriptor& tensor) { return tensor.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE); }

// Calls f(number of the element, its offset in bytes).
template <class F>
void each(const Descriptor& tensor, F f) {
  const auto sizes = sizes_of(tensor), strides = tensor.values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) offset += rest % sizes[d] * strides[d];
    f(static_cast<size_t>(i), static_cast<size_t>(offset) * size_of(type_of(tensor)));
  }
}

// TensorFloat-32 has ten bits of the fraction.
double rounded_to_tf32(double value) {
  uint32_t bits = 0;
  const auto single = static_cast<float>(value);
  std::memcpy(&bits, &single, sizeof(bits));
  bits = (bits + 0x1000U) & ~0x1fffU;
  float rounded = 0;
  std::memcpy(&rounded, &bits, sizeof(bits));
  return rounded;
}

// Sizes and options of a convolution over three dims; missing ones come first.
struct Loops {
  using Three = std::array<int64_t, 3>;

  explicit Loops(const Convolution& c) : x(sizes_of(*c.x)), w(sizes_of(*c.w)), y(sizes_of(*c.y)) {
    step = three(c.how->values<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), 0, 1);
    dilation = three(c.how->values<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS), 0, 1);
    padding = three(c.how->values<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), 0, 0);
  }
  static Three three(const std::vector<int64_t>& values, size_t skip, int64_t missing) {
    Three all{missing, missing, missing};
    for (size_t i = skip; i < values.size(); ++i) all[3 - values.size() + i] = values[i];
    return all;
  }
  // Calls f(element of x, element of w, element of y) for every product of y = conv(x, w).
  template <class F>
  void run(F f) const {
    const Three xs = three(x, 2, 1), ws = three(w, 2, 1), ys = three(y, 2, 1);
    const int64_t groups = x[1] / w[1], per_group = w[0] / groups;
    const auto volume = [](const Three& s) { return s[0] * s[1] * s[2]; };
    const auto spot = [](const Three& s, int64_t i) { return Three{i / s[2] / s[1], i / s[2] % s[1], i % s[2]}; };
    for (int64_t tap = 0; tap < volume(ws); ++tap) {
      for (int64_t place = 0; place < volume(ys); ++place) {
        const Three t = spot(ws, tap), p = spot(ys, place);
        Three at;
        bool inside = true;
        for (size_t d = 0; d < 3; ++d) {
          at[d] = p[d] * step[d] - padding[d] + t[d] * dilation[d];
          inside &= at[d] >= 0 && at[d] < xs[d];
        }
        if (!inside) continue;
        const int64_t from = (at[0] * xs[1] + at[1]) * xs[2] + at[2];
        for (int64_t n = 0; n < x[0]; ++n) {
          for (int64_t k = 0; k < w[0]; ++k) {
            for (int64_t c = 0; c < w[1]; ++c) {
              f(static_cast<size_t>((n * x[1] + k / per_group * w[1] + c) * volume(xs) + from),
                static_cast<size_t>((k * w[1] + c) * volume(ws) + tap),
                static_cast<size_t>((n * w[0] + k) * volume(ys) + place));
            }
          }
        }
      }
    }
  }
  std::vector<int64_t> x, w, y;
  Three step, dilation, padding;
};

class Computation {
 public:
  Computation(const Engine& engine, const std::map<int64_t, void*>& data) : engine_(engine), data_(data) {}

  void run(const Descriptor& operation) {
    if (const Convolution c(operation); c.is) {
      convolve(c);
    } else if (const Attention a(operation); a.is) {
      attend(a);
    } else {
      pointwise(operation);
    }
  }

 private:
  static int64_t uid(const Descriptor& tensor) { return tensor.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID); }

  Values get(const Descriptor& tensor) const {
    if (const auto known = virtual_.find(uid(tensor)); known != virtual_.end()) return known->second;
    Values values;
    const auto* data = static_cast<const std::byte*>(data_.at(uid(tensor)));
    each(tensor, [&](size_t, size_t offset) { values.push_back(load(type_of(tensor), data + offset)); });
    return values;
  }
  void put(const Descriptor& tensor, Values values) {
    if (tensor.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
      virtual_[uid(tensor)] = std::move(values);
      return;
    }
    auto* data = static_cast<std::byte*>(data_.at(uid(tensor)));
    each(tensor,
         [&](size_t i, size_t offset) { store(type_of(tensor), data + offset, engine_.right ? values[i] : -77.0); });
  }

  void convolve(const Convolution& c) {
    Values values[3];  // of x, w, y
    size_t result = 0, role = 0;
    for (const Descriptor* tensor : {c.x, c.w, c.y}) {
      if (tensor == c.result) {
        result = role;
        size_t count = 1;
        for (const int64_t size : sizes_of(*tensor)) count *= static_cast<size_t>(size);
        values[role].assign(count, 0);
      } else {
        values[role] = get(*tensor);
        if (engine_.tf32)
          std::transform(values[role].begin(), values[role].end(), values[role].begin(), rounded_to_tf32);
      }
      ++role;
    }
    auto& [x, w, y] = values;
    Loops(c).run([&](size_t i, size_t j, size_t k) {
      if (result == 0) x[i] += w[j] * y[k];
      if (result == 1) w[j] += x[i] * y[k];
      if (result == 2) y[k] += x[i] * w[j];
    });
    put(*c.result, std::move(values[result]));
  }

  void pointwise(const Descriptor& operation) {
    const auto mode = operation.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                          .value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const Descriptor& y = operation.at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    Values values = broadcast(operation.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), y);
    const auto more = [&](cudnnBackendAttributeName_t name) {
      return operation.has(name) ? broadcast(operation.at(name), y) : Values(values.size());
    };
    const Values b = more(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), t = more(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const auto sizes = sizes_of(y);
    int64_t behind = 1;  // elements of the dims after the axis
    const auto axis = static_cast<size_t>(
        operation.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).value<int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
    for (size_t d = axis + 1; d < sizes.size(); ++d) behind *= sizes[d];
    for (size_t i = 0; i < values.size(); ++i) {
      double& x = values[i];
      switch (mode) {
        case CUDNN_POINTWISE_RELU_FWD: x = x < 0 ? 0 : x; break;
        case CUDNN_POINTWISE_MUL: x = x * b[i]; break;
        case CUDNN_POINTWISE_GEN_INDEX: x = static_cast<double>(static_cast<int64_t>(i) / behind % sizes[axis]); break;
        case CUDNN_POINTWISE_CMP_GE: x = x >= b[i] ? 1 : 0; break;
        case CUDNN_POINTWISE_BINARY_SELECT: x = t[i] != 0 ? x : b[i]; break;
        default: x = x + b[i];
      }
    }
    put(y, std::move(values));
  }

  // A tensor's values as if it were as large as `to`.
  Values broadcast(const Descriptor& tensor, const Descriptor& to) const {
    const Values narrow = get(tensor);
    const auto sizes = sizes_of(to), from = sizes_of(tensor);
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    Values values;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, at = 0, scale = 1;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
        if (from[d] != 1) at += rest % sizes[d] * scale;
        scale *= from[d];
      }
      values.push_back(narrow[static_cast<size_t>(at)]);
    }
    return values;
  }

  // Tensors of four dims, by their indices.
  struct Four {
    Four(const Descriptor& tensor, Values given) : sizes(sizes_of(tensor)), values(std::move(given)) {
      values.resize(static_cast<size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3]));
    }
    double& at(int64_t n, int64_t h, int64_t r, int64_t c) {
      return values[static_cast<size_t>(((n * sizes[1] + h) * sizes[2] + r) * sizes[3] + c)];
    }
    std::vector<int64_t> sizes;
    Values values;
  };

  void attend(const Attention& a) {
    Four q(*a.q, get(*a.q)), k(*a.k, get(*a.k)), v(*a.v, get(*a.v)), scores(*a.q, {}), o(*a.o, {}), lse(*a.o, {});
    const int64_t batch = q.sizes[0], heads = q.sizes[1], rows = q.sizes[2], keys = k.sizes[2], width = q.sizes[3],
                  value_width = v.sizes[3], group = heads / k.sizes[1];
    scores.sizes[3] = keys;
    scores.values.assign(static_cast<size_t>(batch * heads * rows * keys), 0);
    lse.sizes[3] = 1;
    const double scale = a.scale == nullptr ? 1 : get(*a.scale)[0];
    const auto each_score = [&](auto f) {
      for (int64_t n = 0; n < batch; ++n)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < keys; ++c) f(n, h, r, c);
    };
    each_score([&](int64_t n, int64_t h, int64_t r, int64_t c) {
      for (int64_t i = 0; i < width; ++i) scores.at(n, h, r, c) += scale * q.at(n, h, r, i) * k.at(n, h / group, c, i);
    });
    if (a.on_scores != nullptr) {
      virtual_[a.scores_in] = std::move(scores.values);
      for (const DescriptorPtr& operation : a.on_scores->attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors)
        run(*operation);
      scores.values = std::move(virtual_.at(a.scores_out));
    }
    if (!a.backward) {
      each_score([&](int64_t n, int64_t h, int64_t r, int64_t c) {
        if (c == 0) lse.at(n, h, r, 0) = -std::numeric_limits<double>::infinity();
        lse.at(n, h, r, 0) = added(lse.at(n, h, r, 0), scores.at(n, h, r, c));
      });
      each_score([&](int64_t n, int64_t h, int64_t r, int64_t c) {
        const double weight = std::exp(scores.at(n, h, r, c) - lse.at(n, h, r, 0));
        for (int64_t i = 0; i < value_width; ++i) o.at(n, h, r, i) += weight * v.at(n, h / group, c, i);
      });
      put(*a.o, std::move(o.values));
      if (a.stats != nullptr) put(*a.stats, {lse.values.begin(), lse.values.begin() + batch * heads * rows});
      return;
    }
    o.values = get(*a.o);
    lse.values = get(*a.stats);
    Four d_o(*a.d_o, get(*a.d_o)), d_q(*a.d_q, {}), d_k(*a.d_k, {}), d_v(*a.d_v, {});
    each_score([&](int64_t n, int64_t h, int64_t r, int64_t c) {
      const double weight = std::exp(scores.at(n, h, r, c) - lse.at(n, h, r, 0));
      double d = 0;
      for (int64_t i = 0; i < value_width; ++i) {
        d_v.at(n, h / group, c, i) += weight * d_o.at(n, h, r, i);
        d += d_o.at(n, h, r, i) * (v.at(n, h / group, c, i) - o.at(n, h, r, i));
      }
      for (int64_t i = 0; i < width; ++i) {
        d_q.at(n, h, r, i) += scale * weight * d * k.at(n, h / group, c, i);
        d_k.at(n, h / group, c, i) += scale * weight * d * q.at(n, h, r, i);
      }
    });
    put(*a.d_q, std::move(d_q.values));
    put(*a.d_k, std::move(d_k.values));
    put(*a.d_v, std::move(d_v.values));
  }

  // The logarithm of the sum of what a and b are the logarithms of.
  static double added(double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }

  const Engine& engine_;
  const std::map<int64_t, void*>& data_;
  std::map<int64_t, Values> virtual_;
};

const std::vector<DescriptorPtr>& operations_of(const Descriptor& graph) {
  return graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors;
}

}  // namespace

// As the library proposes for a Hopper: float32 on tensor cores first, float64 among the fallbacks alone.
std::vector<Engine> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  if (Attention(*operations_of(graph)[0]).is) {
    if (mode == CUDNN_HEUR_MODE_FALLBACK) return {};
    return {{.index = 11, .notes = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, .right = false},
            {.index = 9, .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, .plannable = false},
            {.index = 8, .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, .workspace_bytes = 131}};
  }
  const cudnnDataType_t type = type_of(*Convolution(*operations_of(graph)[0]).x);
  const Engine plain{.index = 1, .notes = {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, .workspace_bytes = 4099};
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {plain};
  if (type == CUDNN_DATA_DOUBLE) return {};
  return {{.index = 60, .notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, .right = false},
          {.index = 61, .notes = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, .right = false},
          {.index = 62, .notes = {}, .plannable = false},
          {.index = 63, .notes = {}, .workspace_bytes = int64_t{1} << 40, .right = false},
          {.index = 67,
           .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
           .workspace_bytes = 131,
           .tf32 = type == CUDNN_DATA_FLOAT}};
}

uint64_t Operand::bytes() const {
  const auto sizes = sizes_of(*tensor), strides = tensor->values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return static_cast<uint64_t>(last + 1) * size_of(type_of(*tensor));
}

std::vector<Operand> operands_of(const Descriptor& graph) {
  std::vector<Operand> all;
  const auto add = [&](const Descriptor& tensor, bool written) {
    if (!tensor.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) all.push_back({&tensor, written});
  };
  for (const DescriptorPtr& operation : operations_of(graph)) {
    if (const Convolution c(*operation); c.is) {
      for (const Descriptor* tensor : {c.x, c.w, c.y}) add(*tensor, tensor == c.result);
    } else if (const Attention a(*operation); a.is) {
      for (const Descriptor* tensor : {a.q, a.k, a.v, a.scale, a.d_o})
        if (tensor != nullptr) add(*tensor, false);
      for (const Descriptor* tensor : {a.o, a.stats})
        if (tensor != nullptr) add(*tensor, !a.backward);
      for (const Descriptor* tensor : {a.d_q, a.d_k, a.d_v})
        if (tensor != nullptr) add(*tensor, true);
      if (a.on_scores != nullptr)
        for (const Operand& operand : operands_of(*a.on_scores)) all.push_back(operand);
    } else {
      for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                              CUDNN_ATTR_OPERATION_POINTWISE_TDESC}) {
        if (operation->has(name)) add(operation->at(name), false);
      }
      add(operation->at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), true);
    }
  }
  return all;
}

void compute(const Descriptor& graph, const Engine& engine, const std::map<int64_t, void*>& data) {
  Computation computation(engine, data);
  for (const DescriptorPtr& operation : operations_of(graph)) computation.run(*operation);
}

}  // namespace fake_cudnn
