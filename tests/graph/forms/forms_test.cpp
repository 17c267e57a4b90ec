#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/forms/form.h"
#include "support/error_of.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(Signature, IsParsed) {
  const Signature s = parse_signature(
      "nn.functional.f(Tensor input, Operand other, Tensor? w=None, int[1] dim=[0, 1], int?[1]? size=None, *, Scalar "
      "alpha=1, float eps=1e-05, str mode=\"mean\", bool keep=False, ScalarType? dtype=None) -> (Tensor values, Tensor "
      "at)");
  EXPECT_EQ(s.qualified(), "nn.functional.f");
  EXPECT_EQ(s.text.substr(0, 7), "f(Tenso");
  EXPECT_EQ(s.num_positional(), 5);
  EXPECT_EQ(s.result, ResultKind::kTuple);
  EXPECT_EQ(s.fields, (std::vector<std::string>{"values", "at"}));
  const auto& p = s.params;
  EXPECT_TRUE(p[0].required && p[0].kind == ArgKind::kTensor && !p[0].nullable);
  EXPECT_TRUE(p[1].required && p[1].kind == ArgKind::kOperand);
  EXPECT_TRUE(!p[2].required && p[2].nullable);
  EXPECT_TRUE(p[3].kind == ArgKind::kInts && p[3].single && p[3].default_value == Attr(Ints{0, 1}));
  EXPECT_TRUE(p[4].holes && p[4].single && p[4].nullable);
  EXPECT_TRUE(p[5].keyword_only && p[5].default_value == Attr(int64_t{1}));
  EXPECT_EQ(p[6].default_value, Attr(1e-5));
  EXPECT_EQ(p[7].default_value, Attr(std::string("mean")));
  EXPECT_EQ(p[8].default_value, Attr(false));
  EXPECT_EQ(p[9].default_value, Attr());
  EXPECT_TRUE(parse_signature("meshgrid(Tensor... tensors) -> Tensor[]").params[0].variadic);
  const SignatureParam scales = parse_signature("resize(float[1]? scales=None) -> Tensor").params[0];
  EXPECT_TRUE(scales.kind == ArgKind::kFloats && scales.single && scales.nullable);
  EXPECT_EQ(expected(scales), "float or tuple of floats");
  EXPECT_EQ(python_type(scales), "float | Sequence[float] | None");
}

TEST(Signature, SaysWhatIsMalformed) {
  const std::map<std::string, std::string> wrong = {
      {"f(Tensor input)", "result: found end of line"},
      {"f(Tenso input) -> Tensor", "type 'Tenso' is unknown"},
      {"f(Tensor) -> Tensor", "without a name"},
      {"f(float x=1 -> Tensor", "parameters: found"},
      {"f(int x=1.5) -> Tensor", "default of 'x' is 1.5; must be of its type, int"},
      {"f(int x=None) -> Tensor", "default of 'x' is none"},
      {"f(int x=yes) -> Tensor", "is no number"},
      {"f(bool[] x) -> Tensor", "no lists of bool"},
      {"f() -> str", "no function gives str"},
      {"f() -> (int a)", "a tuple has tensors only"},
      {"(Tensor x) -> Tensor", "no name"},
      {"f(Tensor x) -> Tensor and more", "extra text"},
  };
  for (const auto& [text, what] : wrong) {
    EXPECT_THAT(test::message_of([&] { parse_signature(text); }), HasSubstr(what)) << text;
    EXPECT_THAT(test::message_of([&] { parse_signature(text); }), HasSubstr("signature '" + text + "'"));
  }
}

Value same(const Value& x) { return x; }

TEST(Overload, FitsItsFunctionOrSaysSo) {
  EXPECT_THAT(test::message_of([] { overload("f(Tensor x, int n) -> Tensor", &same); }),
              HasSubstr("'f(Tensor x, int n) -> Tensor' has 2 parameters; its function takes 1"));
  EXPECT_THAT(test::message_of([] { overload("f(int x) -> Tensor", &same); }),
              HasSubstr("parameter 'x' of 'f(int x) -> Tensor' is of another type"));
  EXPECT_THAT(
      test::message_of([] { overload("f(Tensor x, float? eps) -> Tensor", [](const Value& x, double) { return x; }); }),
      HasSubstr("parameter 'eps'"));
  EXPECT_EQ(test::message_of([] { overload("f(Tensor x, bool inplace=False) -> Tensor", &same); }), "no error");
}

TEST(Overload, HandsItsArgumentsOver) {
  const Overload o =
      overload("f(int n, float? eps=None, int[1] dims=0, *, str mode=\"a\") -> int",
               [](int64_t n, const std::optional<double>& eps, const Ints& dims, const std::string& mode) {
                 return n + static_cast<int64_t>(eps.value_or(10)) + dims[0] + static_cast<int64_t>(mode.size());
               });
  FormArgs args;
  args.emplace<int64_t>(1);
  args.emplace<double>(2.0);
  args.emplace<Ints>(Ints{3});
  args.emplace<std::string>("four");
  EXPECT_EQ(std::get<int64_t>(o.function(args)), 10);
  args.clear();
  args.emplace<int64_t>(1);
  for (size_t i = 1; i < 4; ++i) args.push(default_argument(o.signature.params[i], false));
  EXPECT_EQ(std::get<int64_t>(o.function(args)), 12);
}

TEST(Forms, HaveNamesOfTheirOwnAndDocumentation) {
  std::set<std::string> functions, methods;
  for (const Form& form : builtin_forms()) {
    std::vector<std::string> names = {form.overloads[0].signature.qualified()};
    names.insert(names.end(), form.aliases.begin(), form.aliases.end());
    for (const std::string& name : names) {
      const bool in_module = name.find('.') != std::string::npos;
      if (in_module || form.function) {
        EXPECT_TRUE(functions.insert(name).second) << name;
      }
      if (!in_module && form.method) {
        EXPECT_TRUE(methods.insert(name).second) << name;
      }
    }
    for (const Overload& o : form.overloads) EXPECT_EQ(o.signature.name, form.name());
    EXPECT_THAT(form.doc, testing::AnyOf(HasSubstr("torch."), HasSubstr("F."))) << form.name();
  }
  EXPECT_GT(functions.size(), 150u);
}

}  // namespace
}  // namespace sluice
