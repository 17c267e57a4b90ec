#pragma once
// The public functions of Sluice, under torch's names. A form is the data from which a language's bindings, their type
// stubs and the reference are made: signatures with the functions behind them, other names, and where they exist.
//
// Forms stand beside what they name: `xxx_forms()` of a family of ops, an explicit list as `xxx_ops()` is. A composite
// is a C++ function and one entry:
//
//   {.doc = "a + weight * (b - a). torch.lerp.",
//    .overloads = {overload("lerp(Tensor input, Tensor end, Operand weight) -> Tensor", &lerp)},
//    .in_place = true}
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "graph/forms/signature.h"
#include "graph/op_def.h"
#include "graph/operand.h"
#include "graph/value.h"

namespace sluice {

// NoAttr: None, where the parameter is nullable and not a tensor (an absent tensor is an undefined Value).
using FormArg = std::variant<NoAttr, Value, ops::Operand, bool, int64_t, double, std::string, DType, Ints,
                             std::vector<Value>, std::vector<double>>;
using FormResult = std::variant<Value, std::vector<Value>, bool, int64_t, double, Ints>;

// The arguments of one call, in the order of the signature's parameters, in memory of their own.
class FormArgs {
 public:
  static constexpr size_t kMax = 16;

  FormArgs() = default;
  ~FormArgs() { clear(); }
  FormArgs(const FormArgs&) = delete;
  FormArgs& operator=(const FormArgs&) = delete;

  size_t size() const { return size_; }
  FormArg& operator[](size_t i) { return at()[i]; }
  void clear() {
    while (size_ > 0) std::destroy_at(at() + --size_);
  }
  // REQUIRES: size() < kMax.
  template <class T, class... A>
  void emplace(A&&... a) {
    new (at() + size_) FormArg(std::in_place_type<T>, std::forward<A>(a)...);
    ++size_;
  }
  void push(const FormArg& arg) {
    new (at() + size_) FormArg(arg);
    ++size_;
  }

 private:
  FormArg* at() { return std::launder(reinterpret_cast<FormArg*>(memory_.data())); }

  alignas(FormArg) std::array<std::byte, kMax * sizeof(FormArg)> memory_;
  size_t size_ = 0;
};

struct Overload {
  Signature signature;
  std::function<FormResult(FormArgs&)> function;
  // Per parameter: its tensor is handed over as an Operand, since the function takes one there.
  std::vector<bool> as_operand = {};
};

// Says what a result may share with the first argument.
enum class Sharing : uint8_t {
  kNothing,  // it has memory of its own
  kView,     // it may be a view, and is another tensor in any case
  kItself,   // it is the argument where there is nothing to do, as contiguous()
};

struct Form {
  const char* doc = "";  // shapes, dtypes, and the torch function it follows
  std::vector<Overload> overloads;
  std::vector<const char*> aliases = {};  // the same under other names: "absolute", "special.expit"
  // Names without a module may exist as a function, as a method of the first parameter, as a method that writes into it
  // (`add_`; where the result is a view, the object becomes the view), as a function that writes into out=.
  bool function = true, method = true, in_place = false, out = false;
  // In place, the first op call that can may write to the first operand at once: calls before it give another dtype,
  // and none after it reads that operand.
  bool reads_once = false;
  const char* python_operator = nullptr;  // "add": x + y
  bool reflected = false;                 // y + x as well, and x += y where in_place
  Sharing sharing = Sharing::kNothing;

  const std::string& name() const { return overloads[0].signature.name; }
  const std::string& module() const { return overloads[0].signature.module; }
};

namespace form_detail {

// How a parameter of a C++ function reads its argument, and which kinds of argument it can.
template <class T>
struct Reader;

template <class T, ArgKind... kinds>
struct Plain {
  static bool reads(const SignatureParam& p) { return !p.nullable && ((p.kind == kinds) || ...); }
  static const T& get(FormArg& arg) { return std::get<T>(arg); }
};
template <>
struct Reader<Value> {
  static bool reads(const SignatureParam& p) { return p.kind == ArgKind::kTensor; }
  static const Value& get(FormArg& arg) { return std::get<Value>(arg); }
};
template <>
struct Reader<ops::Operand> {
  static bool reads(const SignatureParam& p) {
    return !p.nullable && (p.kind == ArgKind::kTensor || p.kind == ArgKind::kOperand || p.kind == ArgKind::kScalar);
  }
  static const ops::Operand& get(FormArg& arg) { return std::get<ops::Operand>(arg); }
};
template <>
struct Reader<bool> : Plain<bool, ArgKind::kBool> {};
template <>
struct Reader<int64_t> : Plain<int64_t, ArgKind::kInt> {};
template <>
struct Reader<double> {
  static bool reads(const SignatureParam& p) {
    return !p.nullable && (p.kind == ArgKind::kFloat || p.kind == ArgKind::kScalar);
  }
  static double get(FormArg& arg) {
    const ops::Operand* number = std::get_if<ops::Operand>(&arg);
    return number ? number->number() : std::get<double>(arg);
  }
};
template <>
struct Reader<std::string> : Plain<std::string, ArgKind::kStr> {};
template <>
struct Reader<DType> : Plain<DType, ArgKind::kDType> {};
template <>
struct Reader<Ints> : Plain<Ints, ArgKind::kInts> {};
template <>
struct Reader<Shape> : Plain<Ints, ArgKind::kInts> {
  static Shape get(FormArg& arg) { return Shape(std::get<Ints>(arg)); }
};
template <>
struct Reader<std::vector<Value>> : Plain<std::vector<Value>, ArgKind::kTensors> {};
template <>
struct Reader<std::vector<double>> : Plain<std::vector<double>, ArgKind::kFloats> {};
template <>
struct Reader<std::span<const Value>> : Reader<std::vector<Value>> {};
template <class T>
struct Reader<std::optional<T>> {
  static bool reads(const SignatureParam& p) {
    SignatureParam given = p;
    given.nullable = false;
    return p.nullable && Reader<T>::reads(given);
  }
  static std::optional<T> get(FormArg& arg) {
    if (std::holds_alternative<NoAttr>(arg)) return std::nullopt;
    return Reader<T>::get(arg);
  }
};

template <class T>
constexpr bool kIsOperand = std::is_same_v<T, ops::Operand> || std::is_same_v<T, std::optional<ops::Operand>>;

inline FormResult result(FormResult r) { return r; }
inline FormResult result(std::pair<Value, Value> r) {
  return std::vector<Value>{std::move(r.first), std::move(r.second)};
}
template <size_t n>
FormResult result(const std::array<Value, n>& r) {
  return std::vector<Value>(r.begin(), r.end());
}

// Throws kRuntime unless the function has one parameter for each of the signature's, and can read each.
void check_readers(const Signature& signature, std::span<bool (*const)(const SignatureParam&)> readers);

template <class F, class R, class... A, size_t... i>
Overload make(const std::string& signature, F function, R (*)(A...), std::index_sequence<i...>) {
  bool (*const readers[])(const SignatureParam&) = {&Reader<std::decay_t<A>>::reads..., nullptr};
  Overload made{parse_signature(signature), {}, {kIsOperand<std::decay_t<A>>...}};
  check_readers(made.signature, {readers, sizeof...(A)});
  made.as_operand.resize(made.signature.params.size());
  made.function = [function](FormArgs& args) -> FormResult {
    return result(function(Reader<std::decay_t<A>>::get(args[i])...));
  };
  return made;
}

template <class R, class... A>
auto plain_type(std::function<R(A...)>) -> R (*)(A...);

}  // namespace form_detail

// `function` (a pointer, or a lambda) behind `signature`. Its parameters are the signature's, in C++: const Value&
// (undefined for an absent Tensor?), const Operand&, double or int64_t, bool, const std::string&, DType, const Ints& or
// Shape, std::span<const Value>; std::optional<T> for nullable ones. Its result is a Value, a pair, array or vector of
// them, a bool, int64_t, double or Ints. Throws kRuntime where they do not fit.
template <class F>
Overload overload(const std::string& signature, F function) {
  using Function = decltype(form_detail::plain_type(std::function(function)));
  const auto count = [&]<class R, class... A>(R (*f)(A...)) {
    return form_detail::make(signature, function, f, std::index_sequence_for<A...>());
  };
  return count(static_cast<Function>(nullptr));
}

// An argument's default, as the functions behind the overload want it.
FormArg default_argument(const SignatureParam& param, bool as_operand);

// All forms of the ops, from the families' explicit lists (graph/ops/all_forms.cpp). Made on first use.
const std::vector<Form>& builtin_forms();

}  // namespace sluice
