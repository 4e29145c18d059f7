# The libraries that keel does not build without: fmt, yaml-cpp, nlohmann-json and utf8proc. All that are missing are named at once.

# Where nothing can be installed: a folder that scripts/bundle-deps has filled, looked into before any other place.
set(KEEL_DEPS "$ENV{KEEL_DEPS}" CACHE PATH "Folder with the libraries that keel needs, filled by scripts/bundle-deps")
if(KEEL_DEPS)
  cmake_path(ABSOLUTE_PATH KEEL_DEPS BASE_DIRECTORY "${keel_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE keel_deps)
  if(NOT IS_DIRECTORY "${keel_deps}/lib/cmake")
    message(FATAL_ERROR "KEEL_DEPS is '${KEEL_DEPS}', which scripts/bundle-deps has not filled")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH "${keel_deps}")
  message(STATUS "Libraries: first from ${keel_deps}")
endif()

set(keel_missing "")
# keel_need(PACKAGE PROOF): find_package, with PROOF being a header of it in scripts/packages.
macro(keel_need package proof)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    keel_package_of(keel_hint ${proof})
    string(APPEND keel_missing "\n  ${package}${keel_hint}")
  endif()
endmacro()
keel_need(fmt fmt/core.h)
keel_need(yaml-cpp yaml-cpp/yaml.h)
keel_need(nlohmann_json nlohmann/json.hpp)
keel_need(utf8proc utf8proc.h)
if(keel_missing)
  message(FATAL_ERROR "keel does not build without these libraries, which were not found:${keel_missing}\n"
    "scripts/quickstart installs them, after asking. Where nothing can be installed, `scripts/bundle-deps DIR` on a machine "
    "that has them fills a folder to copy here; then configure with -DKEEL_DEPS=DIR. Libraries in places of their own are "
    "found by -DCMAKE_PREFIX_PATH=PREFIX.")
endif()
if(NOT TARGET yaml-cpp AND TARGET yaml-cpp::yaml-cpp)  # what 0.8 and later call it
  add_library(yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
endif()
