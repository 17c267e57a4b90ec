#include "serving/core/secret.h"

#include <algorithm>
#include <cctype>

namespace sluice::serving {

bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ (b.empty() ? 1u : static_cast<unsigned char>(b[i % b.size()]));
  return difference == 0;
}

bool is_bearer(std::string_view authorization, const std::string& token) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  const bool named = std::equal(scheme.begin(), scheme.end(), kScheme.begin(), kScheme.end(),
                                [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
  if (!named) return false;
  authorization.remove_prefix(kScheme.size());
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
  return same_secret(authorization, token);
}

}  // namespace sluice::serving
