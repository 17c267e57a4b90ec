// What embedders can say of a session in C++ and in C is what the table runtime/options.inc says.
#include "runtime/options.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "include/sluice/session.h"
#include "include/sluice/sluice.h"

namespace sluice {
namespace {

// Embedders say 0 for a time without end.
Timeout said(std::chrono::milliseconds time) { return time.count() == 0 ? kNoTimeout : Timeout(time); }
Timeout said(std::chrono::microseconds time) { return time; }
int said(int number) { return number; }
bool said(bool flag) { return flag; }

// A number of C as the C++ field of that option.
void take(int64_t given, std::chrono::milliseconds& field) { field = std::chrono::milliseconds(given); }
void take(int64_t given, std::chrono::microseconds& field) { field = std::chrono::microseconds(given); }
void take(int64_t given, int& field) { field = static_cast<int>(given); }
void take(int64_t given, bool& field) { field = given != 0; }

TEST(SessionOptions, HaveTheSameDefaultsForEmbedders) {
  const SessionOptions ours;
  const api::SessionOptions cpp;
  const sluice_session_options c = SLUICE_SESSION_OPTIONS_INIT;
  api::SessionOptions from_c;
  int options = 0;
#define OPTION(...)
#define OBJECT(...)
#define PUBLIC(type, name, c_name, ...)          \
  EXPECT_EQ(said(cpp.name), ours.name) << #name; \
  take(c.c_name, from_c.name);                   \
  EXPECT_EQ(from_c.name, cpp.name) << #name;     \
  ++options;
#include "runtime/options.inc"
  std::printf("count: %d options of embedders\n", options);
}

}  // namespace
}  // namespace sluice
