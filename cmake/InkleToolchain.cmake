# Compiler, linker and cache settings that hold for every target.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# `project` has made this variable, empty.
if(NOT CMAKE_CXX_FLAGS_DEV)
  set(CMAKE_CXX_FLAGS_DEV "-O1 -g1 -D_GLIBCXX_ASSERTIONS" CACHE STRING "flags of the dev build" FORCE)
endif()

# The cache is shared by all build folders of a checkout and by all checkouts of a machine.
find_program(INKLE_CCACHE ccache)
if(INKLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${INKLE_CCACHE})
endif()

find_program(INKLE_MOLD mold)
if(INKLE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
add_link_options(-Wl,--as-needed)

if(INKLE_SANITIZE)
  add_compile_options(-fsanitize=${INKLE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${INKLE_SANITIZE})
  if(INKLE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(INKLE_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(INKLE_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()

# Strict, but for what g++ 12 reports wrongly with optional, variant and string at -O2; clang and the
# sanitizers see those. Missing initialisers are how tables of rows are written.
add_library(inkle_warnings INTERFACE)
target_compile_options(inkle_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
  -Wextra-semi -Wvla -Wfloat-conversion -Wimplicit-fallthrough -Wunused
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(inkle_warnings INTERFACE
    -Wduplicated-cond -Wlogical-op -Wno-restrict -Wno-maybe-uninitialized
    -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread -Wno-free-nonheap-object)
else()
  target_compile_options(inkle_warnings INTERFACE
    -Wno-missing-designated-field-initializers -Wno-unknown-warning-option)
endif()
if(INKLE_WERROR)
  target_compile_options(inkle_warnings INTERFACE -Werror)
endif()
