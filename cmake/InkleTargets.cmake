# The helpers that make the targets: every folder's files are found by globbing, so that adding a
# file touches no CMake file, and a folder without sources is an empty interface.

# The folders that src/LAYERS lets `folder` include, base among them.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/LAYERS)
function(inkle_layer folder result)
  file(STRINGS ${CMAKE_SOURCE_DIR}/src/LAYERS line REGEX "^${folder}:")
  if(NOT line)
    message(FATAL_ERROR "${folder} is not in src/LAYERS")
  endif()
  string(REGEX REPLACE "^[^:]*:|\\|.*$" "" folders "${line}")
  separate_arguments(folders)
  if(NOT folder STREQUAL "base")
    list(PREPEND folders base)
  endif()
  set(${result} ${folders} PARENT_SCOPE)
endfunction()

# inkle_library(folder [WITHOUT] [LINK target...] [APART file...]): library inkle_<folder> of
# src/<folder>/*.cpp over the folders of its line in src/LAYERS. LINK, third parties, is seen by this
# folder only. WITHOUT: left out of this build, as if it had no sources. APART: see inkle_unite.
function(inkle_library folder)
  cmake_parse_arguments(ARG "WITHOUT" "" "LINK;APART" ${ARGN})
  string(REPLACE "/" "_" name inkle_${folder})
  set(sources "")
  if(NOT ARG_WITHOUT)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
  endif()
  set(dependencies "")
  inkle_layer(${folder} folders)
  foreach(dependency IN LISTS folders)
    string(REPLACE "/" "_" target inkle_${dependency})
    list(APPEND dependencies ${target})
  endforeach()
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} INTERFACE ${dependencies})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${dependencies} PRIVATE ${ARG_LINK} inkle_warnings)
  inkle_precompile(${name})
  inkle_unite(${name} ${CMAKE_SOURCE_DIR}/src/${folder} ${ARG_APART})
endfunction()

# inkle_flatbuffer(folder schema header): <header> is made of src/<folder>/<schema> in the build
# tree, for the sources of that folder.
function(inkle_flatbuffer folder schema header)
  string(REPLACE "/" "_" name inkle_${folder})
  set(made ${CMAKE_BINARY_DIR}/generated/${folder})
  get_filename_component(stem ${schema} NAME_WE)
  add_custom_command(OUTPUT ${made}/${header}
    COMMAND ${INKLE_FLATC} --cpp --cpp-std c++17 --scoped-enums -o ${made}
      ${CMAKE_SOURCE_DIR}/src/${folder}/${schema}
    COMMAND ${CMAKE_COMMAND} -E rename ${made}/${stem}_generated.h ${made}/${header}
    DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/${schema} VERBATIM)
  target_sources(${name} PRIVATE ${made}/${header})
  target_include_directories(${name} SYSTEM PRIVATE ${made})
endfunction()

# The standard headers that nearly every file includes.
function(inkle_precompile target)
  if(INKLE_PCH)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view>
      <unordered_map> <utility> <variant> <vector> <fmt/format.h>)
  endif()
endfunction()

# inkle_unite(target folder [file...]): with INKLE_UNITY a dozen of its sources are compiled as one. The
# named files of the folder stay apart, as what they call internal has other files' names.
function(inkle_unite target folder)
  if(NOT INKLE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  # Files are included by their whole paths, which no library is to hold.
  target_compile_options(${target} PRIVATE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
  foreach(file IN LISTS ARGN)
    set_source_files_properties(${folder}/${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# inkle_test(folder [SHARDS n] [COST n] [LONG n] LINK target... [APART file...]): executable test_<folder> of
# tests/<folder>/*.cpp and one ctest that runs all its cases (a process a case would cost more than
# most cases), or SHARDS that run a share each. Data files are found through INKLE_TEST_DATA, the
# folder of the sources. LONG: another ctest, <folder>/long, which only `ctest -C Long` runs, of the
# long counts that INKLE_LONG_TESTS=n asks for. COST: about the seconds of a share, so that ctest
# starts the longest first where it has measured none.
function(inkle_test folder)
  cmake_parse_arguments(ARG "" "SHARDS;LONG;COST" "LINK;APART" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  file(GLOB helpers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*.cpp)
  string(REPLACE "/" "_" name test_${folder})
  add_executable(${name} ${helpers})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    INKLE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/${folder}" INKLE_SOURCE="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main GTest::gmock inkle_warnings)
  inkle_precompile(${name})
  inkle_unite(${name} ${CMAKE_SOURCE_DIR}/tests/${folder} ${ARG_APART})
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${folder})
    if(ARG_SHARDS GREATER 1)
      string(APPEND test /${shard})
    endif()
    add_test(NAME ${test} COMMAND ${name} --gtest_brief=1)
    # Code is generated, not taken from the user's cache.
    set_tests_properties(${test} PROPERTIES TIMEOUT 300 LABELS fast ENVIRONMENT
      "INKLE_CACHE_DIR=;GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
    if(ARG_COST)
      set_tests_properties(${test} PROPERTIES COST ${ARG_COST})
    endif()
  endforeach()
  if(ARG_LONG)
    add_test(NAME ${folder}/long CONFIGURATIONS Long COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${folder}/long PROPERTIES TIMEOUT 3600 LABELS long ENVIRONMENT
      "INKLE_CACHE_DIR=;INKLE_LONG_TESTS=${ARG_LONG}")
  endif()
endfunction()

# What needs a GPU, under the label gpu. The Python tests need torch and the module in that Python.
function(inkle_gpu_tests)
  if(NOT Python_EXECUTABLE OR NOT TARGET test_driver)
    return()
  endif()
  set(script ${CMAKE_SOURCE_DIR}/scripts/test_gpu)
  foreach(what kernels memcheck racecheck mutants)
    add_test(NAME gpu/${what} COMMAND ${script} ${what} $<TARGET_FILE:test_driver> ${Python_EXECUTABLE})
    list(APPEND names gpu/${what})
  endforeach()
  if(TARGET _inkle)
    foreach(what python packages)
      add_test(NAME gpu/${what} COMMAND ${script} ${what} ${Python_EXECUTABLE})
      list(APPEND names gpu/${what})
    endforeach()
  endif()
  set_tests_properties(${names} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 TIMEOUT 3600 RUN_SERIAL ON)
endfunction()

# Every <folder>/<name>_fuzz.cpp is a libFuzzer program of its name if INKLE_FUZZERS is on; else it
# becomes <name>_fuzz_replay, a test that runs <folder>/corpus/<name>_fuzz/ and mutations of it.
function(inkle_fuzzers folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*_fuzz.cpp)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    if(INKLE_FUZZERS)
      add_executable(${name} ${source})
      target_link_libraries(${name} PRIVATE inkle_driver inkle_warnings -fsanitize=fuzzer)
    else()
      add_executable(${name}_replay ${source} ${CMAKE_SOURCE_DIR}/${folder}/replay.cpp)
      target_link_libraries(${name}_replay PRIVATE inkle_driver inkle_warnings)
      add_test(NAME fuzz/${name}
        COMMAND ${name}_replay ${CMAKE_SOURCE_DIR}/${folder}/corpus/${name})
      set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT 300 LABELS fast)
    endif()
  endforeach()
endfunction()

# Every <folder>/*_benchmark.cpp is one program of its name; `ninja benchmarks` builds them all.
function(inkle_benchmarks folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*_benchmark.cpp)
  add_custom_target(benchmarks)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${name} PRIVATE inkle_driver benchmark::benchmark inkle_warnings)
    add_dependencies(benchmarks ${name})
  endforeach()
endfunction()
