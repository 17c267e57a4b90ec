#pragma once
// std::function and std::chrono's durations. Their whole headers are a third of what a compiler reads of the C++ API,
// so where the standard library is known to have them apart, only those parts are read.
#include <cstddef>  // which says whose library it is

#if defined(__GLIBCXX__) && __has_include(<bits/std_function.h>) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#include <bits/std_function.h>
#else
#include <chrono>
#include <functional>
#endif
