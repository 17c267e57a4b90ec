// Folders that take the place of others in the names of files.
#include "base/files/data_roots.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace sluice {
namespace {

using Roots = std::map<std::string, std::string>;

TEST(DataRoots, TakeThePlaceOfWholeFolders) {
  const DataRoots roots(Roots{{"train", "/srv/train"}, {"/data/", "/mnt/d/"}});
  EXPECT_EQ(roots.moved("train/dark/0.jpg"), "/srv/train/dark/0.jpg");
  EXPECT_EQ(roots.moved("/data/x.tar"), "/mnt/d/x.tar");
  EXPECT_EQ(roots.moved("/data"), "/mnt/d");
  for (const char* other : {"training/0.jpg", "/database/x", "a/train/0.jpg", "./train/0.jpg", ""})
    EXPECT_EQ(roots.moved(other), other);
}

TEST(DataRoots, TheLongestCounts) {
  const DataRoots roots(Roots{{"a", "x"}, {"a/b", "y"}, {"", "rest"}});
  EXPECT_EQ(roots.moved("a/b/c"), "y/c");
  EXPECT_EQ(roots.moved("a/bb"), "x/bb");
  EXPECT_EQ(roots.moved("other"), "rest/other");
  EXPECT_EQ(roots.moved("/a/b/c"), "/a/b/c");
  EXPECT_EQ(roots.moved(""), "");
}

TEST(DataRoots, AllNamesThatAreAbsolute) {
  const DataRoots roots(Roots{{"/", "image"}});
  EXPECT_EQ(roots.moved("/a/b"), "image/a/b");
  EXPECT_EQ(roots.moved("a/b"), "a/b");
  EXPECT_EQ(DataRoots(Roots{{"a", "/"}}).moved("a/b"), "/b");
}

TEST(DataRoots, KernelsAreToldByTheirAttributes) {
  NamedAttrs attrs{{"count", int64_t{3}}};
  EXPECT_TRUE(DataRoots(attrs).empty());
  DataRoots(Roots{{"a", "x"}}).put_into(attrs);
  DataRoots(Roots{{"a", "y"}}).put_into(attrs);  // takes the place of the other
  EXPECT_EQ(attrs.size(), 2u);
  EXPECT_EQ(DataRoots(attrs).moved("a/0.jpg"), "y/0.jpg");
  EXPECT_EQ(test::error_of([] {
              DataRoots(Roots{{"a", ""}});
            }),
            "value: data_roots: 'a' is to be found in ''; must be a folder, \".\" for the current one");
}

}  // namespace
}  // namespace sluice
