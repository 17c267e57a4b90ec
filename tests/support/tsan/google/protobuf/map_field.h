#pragma once
// Under ThreadSanitizer this header of protobuf's gives maps two more members, which Debian's library was built
// without: each would write where the other has something else. So protobuf is not told.
#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
