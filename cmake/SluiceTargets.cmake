# What most sources of the libraries include, compiled once: for half of them these headers are most of what their
# compiler reads. g++ takes them where the same flags are set, so who has some of its own (OWN) compiles its own.
set(SLUICE_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <map> <memory>
    <mutex> <numeric> <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
    <fmt/format.h>)
function(sluice_common_headers target)
  cmake_parse_arguments(ARG "OWN" "" "" ${ARGN})
  # -fpch-preprocess: for ccache. The rest: false alarms on std::string, since g++ 12 forgets that precompiled headers are
  # the system's.
  set(options $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow>)
  target_compile_options(${target} PRIVATE ${options})
  if(ARG_OWN)
    target_precompile_headers(${target} PRIVATE ${SLUICE_COMMON_HEADERS})
    return()
  endif()
  if(NOT TARGET sluice_common_headers)
    add_library(sluice_common_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/common_headers.cpp)
    target_link_libraries(sluice_common_headers PRIVATE fmt::fmt)
    target_compile_options(sluice_common_headers PRIVATE ${SLUICE_WARNINGS} ${options})
    target_precompile_headers(sluice_common_headers PRIVATE ${SLUICE_COMMON_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM sluice_common_headers)
endfunction()

# Several sources of a target are compiled as one: what their headers make is then made once, which is most of what the
# compiler does. Who is with whom follows from their names, so that a new source moves no other. ALONE are those that take
# long by themselves, so that all cores have work; they do without precompiled headers, which have other paths in other
# build trees, so that a compiler cache knows them there.
option(SLUICE_UNITY "Compile several sources at once, for builds of everything" ON)
function(sluice_unity target)
  cmake_parse_arguments(ARG "" "" "ALONE" ${ARGN})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SLUICE_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  set(groups 1)
  while(count GREATER 9)  # sources of a group, about
    math(EXPR count "${count} / 2")
    math(EXPR groups "${groups} * 2")
  endwhile()
  foreach(source ${sources})
    get_filename_component(name ${source} NAME)
    string(MD5 hash ${name})
    string(SUBSTRING ${hash} 0 6 hash)
    math(EXPR group "0x${hash} % ${groups}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

# sluice_library(NAME DEPS ...): a folder of the source tree as a static library, linking exactly its layer's deps.
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE;OPTIONS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/${name}/(c|cuda|meta)/")  # libraries of their own
  list(TRANSFORM ARG_DEPS PREPEND sluice_)
  if(sources)
    add_library(sluice_${name} STATIC ${sources})
    target_include_directories(sluice_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(sluice_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE})
    target_compile_options(sluice_${name} PRIVATE ${SLUICE_WARNINGS} ${ARG_OPTIONS})
    sluice_unity(sluice_${name})
    if(ARG_OPTIONS)
      sluice_common_headers(sluice_${name} OWN)
    else()
      sluice_common_headers(sluice_${name})
    endif()
  else()
    add_library(sluice_${name} INTERFACE)
    target_include_directories(sluice_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(sluice_${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# What all tests include, compiled once: these headers are most of what a test's compiler reads. Tests are not measured, so
# they are optimised little; the libraries they test are compiled as for users.
function(sluice_quick_to_compile target)
  set(options ${SLUICE_WARNINGS} $<$<CONFIG:Release>:-Og> $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  target_compile_options(${target} PRIVATE ${options})
  if(NOT TARGET sluice_test_headers)
    add_executable(sluice_test_headers EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/support/headers.cpp)
    target_link_libraries(sluice_test_headers PRIVATE GTest::gtest GTest::gmock fmt::fmt)
    target_compile_options(sluice_test_headers PRIVATE ${options})
    target_precompile_headers(sluice_test_headers PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring>
      <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <string>
      <thread> <vector> <fmt/format.h> <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM sluice_test_headers)
  sluice_unity(${target})
endfunction()

# Under ThreadSanitizer whoever links this library, which is not instrumented, has tests/support/tsan/NAME_seen.cpp in
# front of it, which tells what the library hands from thread to thread.
function(sluice_seen_by_tsan name library)
  if(NOT SLUICE_SANITIZE MATCHES thread)
    return()
  endif()
  add_library(sluice_${name}_seen OBJECT ${PROJECT_SOURCE_DIR}/tests/support/tsan/${name}_seen.cpp)
  set_target_properties(sluice_${name}_seen PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET default)
  target_include_directories(sluice_${name}_seen SYSTEM PRIVATE $<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${library} INTERFACE $<TARGET_OBJECTS:sluice_${name}_seen>)
endfunction()

# sluice_tests(FOLDER DEPS ...): the *_test.cpp in tests/FOLDER and its rooms as one GoogleTest program FOLDER_tests (a/b: a_b_tests).
function(sluice_tests folder)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  list(TRANSFORM ARG_DEPS PREPEND sluice_)
  string(REPLACE "/" "_" folder ${folder})
  add_executable(${folder}_tests ${sources})
  target_include_directories(${folder}_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${folder}_tests PRIVATE ${ARG_DEPS} ${ARG_PRIVATE} GTest::gtest GTest::gmock GTest::gtest_main)
  sluice_quick_to_compile(${folder}_tests)
  target_compile_definitions(${folder}_tests PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set(properties TIMEOUT 120)
  if(SLUICE_SANITIZE)
    set(properties TIMEOUT 1200)
    set_target_properties(${folder}_tests PROPERTIES CROSSCOMPILING_EMULATOR "${SLUICE_TEST_LAUNCHER}")
  endif()
  gtest_discover_tests(${folder}_tests NO_PRETTY_VALUES TEST_PREFIX "${folder}." DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()
