#include "graph/forms/form.h"

namespace sluice {
namespace form_detail {

void check_readers(const Signature& signature, std::span<bool (*const)(const SignatureParam&)> readers) {
  const size_t wanted = signature.params.size() - signature.has_inplace();
  SLUICE_CHECK_KIND(kRuntime, readers.size() == wanted && signature.params.size() <= FormArgs::kMax,
                    "forms: '{}' has {} parameters; its function takes {}, and {} is the limit", signature.text, wanted,
                    readers.size(), FormArgs::kMax);
  for (size_t i = 0; i < wanted; ++i)
    SLUICE_CHECK_KIND(kRuntime, readers[i](signature.params[i]),
                      "forms: parameter '{}' of '{}' is of another type; it must be what its function takes",
                      signature.params[i].name, signature.text);
}

}  // namespace form_detail

FormArg default_argument(const SignatureParam& param, bool as_operand) {
  const Attr& value = param.default_value;
  if (param.kind == ArgKind::kTensor && !as_operand) return Value();
  if (std::holds_alternative<NoAttr>(value)) return NoAttr();
  if (param.kind == ArgKind::kScalar || param.kind == ArgKind::kOperand) {
    if (const int64_t* i = std::get_if<int64_t>(&value)) return ops::Operand(*i);
    if (const bool* b = std::get_if<bool>(&value)) return ops::Operand(*b);
    return ops::Operand(std::get<double>(value));
  }
  return std::visit(
      [&]<class T>(const T& v) -> FormArg {
        if constexpr (std::is_constructible_v<FormArg, const T&>)
          return v;
        else
          fail(ErrorKind::kRuntime, "forms: default of '{}' is {}; must be of a kind that signatures have", param.name,
               attr_kind(value));
      },
      value);
}

}  // namespace sluice
