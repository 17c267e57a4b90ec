#include "cuda/fake_cudnn/graph.h"

#include <algorithm>
#include <array>

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
    Values values = get(operation.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
      for (double& value : values) value = value < 0 ? 0 : value;
      return put(y, std::move(values));
    }
    const Descriptor& b = operation.at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const Values more = get(b);
    const auto sizes = sizes_of(y), narrow = sizes_of(b);
    for (size_t i = 0; i < values.size(); ++i) {
      auto rest = static_cast<int64_t>(i);
      int64_t from = 0, scale = 1;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
        if (narrow[d] != 1) from += rest % sizes[d] * scale;
        scale *= narrow[d];
      }
      const double other = more[static_cast<size_t>(from)];
      values[i] = mode == CUDNN_POINTWISE_MUL ? values[i] * other : values[i] + other;
    }
    put(y, std::move(values));
  }

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
    } else {
      add(operation->at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), false);
      if (operation->has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
        add(operation->at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), false);
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
