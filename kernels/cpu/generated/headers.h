#pragma once
// The headers that generated sources include, as text: whoever runs a program need not have them. Their list is in
// CMakeLists.txt.
#include <span>
#include <string_view>

namespace sluice::generated {

struct Header {
  const char* path;
  std::string_view text;
};
std::span<const Header> headers();

}  // namespace sluice::generated
