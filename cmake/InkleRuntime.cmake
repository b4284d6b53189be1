# The runtime by itself: libinkle_runtime.so with the C API, compiled on its own with {fmt} and
# spdlog in it and libsodium linked in, so that it needs the C++ and OpenMP libraries alone; oneDNN
# is opened when a plan first calls it. And what `cmake --install` gives to those who link it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(sources "")
inkle_layer(capi folders)
set(closed capi)
while(folders)
  list(POP_FRONT folders folder)
  if(NOT folder IN_LIST closed)
    list(APPEND closed ${folder})
    inkle_layer(${folder} more)
    list(APPEND folders ${more})
  endif()
endwhile()
foreach(folder IN LISTS closed)
  file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
  list(APPEND sources ${found})
endforeach()

find_library(INKLE_SODIUM_ARCHIVE libsodium.a)
set(sodium ${INKLE_SODIUM_LIBRARY})
if(INKLE_SODIUM_ARCHIVE)
  set(sodium ${INKLE_SODIUM_ARCHIVE})
endif()
if(INKLE_THREADS STREQUAL "openmp")
  set(threads OpenMP::OpenMP_CXX)
endif()

add_library(inkle_runtime SHARED ${sources} ${CMAKE_BINARY_DIR}/generated/package/inkle_plan_generated.h)
add_dependencies(inkle_runtime inkle_package)
inkle_unite(inkle_runtime "")  # the files that stay apart are told where their folders are
target_include_directories(inkle_runtime PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(inkle_runtime SYSTEM PRIVATE ${CMAKE_BINARY_DIR}/generated/package
  ${INKLE_SODIUM_INCLUDE} ${INKLE_DNNL_INCLUDE} ${INKLE_FLATBUFFERS_INCLUDE})
target_include_directories(inkle_runtime INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src/capi>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_options(inkle_runtime PRIVATE -ffunction-sections -fdata-sections)
if(INKLE_THREADS STREQUAL "std")
  target_compile_definitions(inkle_runtime PRIVATE INKLE_STD_THREADS)
endif()
target_link_libraries(inkle_runtime PRIVATE fmt::fmt-header-only spdlog::spdlog_header_only ${sodium}
  ${threads} Threads::Threads ${CMAKE_DL_LIBS} inkle_warnings)
target_link_options(inkle_runtime PRIVATE -Wl,--gc-sections -Wl,--no-undefined
  -Wl,--version-script,${CMAKE_SOURCE_DIR}/src/capi/inkle.map)
set_target_properties(inkle_runtime PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
  EXPORT_NAME runtime INSTALL_RPATH "$ORIGIN" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/capi/inkle.map)
add_library(inkle::runtime ALIAS inkle_runtime)

# The wheel has the module, which holds the runtime.
if(NOT DEFINED SKBUILD)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/inkle)
  install(TARGETS inkle_runtime EXPORT inkle LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT runtime NAMELINK_COMPONENT runtime)
  install(FILES ${CMAKE_SOURCE_DIR}/src/capi/inkle.h ${CMAKE_SOURCE_DIR}/src/capi/inkle.hpp
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
  install(EXPORT inkle NAMESPACE inkle:: FILE inkleConfig.cmake DESTINATION ${folder}
    COMPONENT runtime)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/inkleConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/inkle.pc.in ${CMAKE_BINARY_DIR}/inkle.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/inkleConfigVersion.cmake DESTINATION ${folder}
    COMPONENT runtime)
  install(FILES ${CMAKE_BINARY_DIR}/inkle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT runtime)
endif()
