# Compiler flags, the include/keel view of the source tree, and keel_layer(): one CMake library per layer.

# Older ones lack parts of C++20.
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14))
  message(FATAL_ERROR "keel needs g++ 11 or clang 14, or later; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} "
    "${CMAKE_CXX_COMPILER_VERSION}. Another one is chosen by -DCMAKE_CXX_COMPILER=g++-13, for example")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${keel_BINARY_DIR}")
# Installed programs and libraries find keel's shared ones (BUILD_SHARED_LIBS=ON) beside them.
set(CMAKE_INSTALL_RPATH "\$ORIGIN;\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3")  # asserts stay on: they are cheap beside a matrix product
# Sources of a target are compiled some at a time, so that they read their headers once. Who edits a file, and clang-tidy,
# want each alone: -DCMAKE_UNITY_BUILD=OFF.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()

find_program(KEEL_CCACHE ccache)
if(KEEL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What one clone has compiled serves the others, too.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${keel_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${KEEL_CCACHE}")
endif()

find_package(Threads REQUIRED)

# Contraction is off and fma is written where it is meant, so that bits do not depend on
# which expressions a compiler happens to fuse; -ffast-math is never used (docs/architecture.md, Numbers).
add_library(keel_flags INTERFACE)
set(keel_cxx_flags -Wall -Wextra -Wno-unknown-pragmas -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(KEEL_NATIVE)
  list(APPEND keel_cxx_flags -march=native)
else()
  list(APPEND keel_cxx_flags -march=x86-64-v3)
endif()
target_compile_options(keel_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${keel_cxx_flags}>")
if(CMAKE_COMPILE_WARNING_AS_ERROR AND CMAKE_VERSION VERSION_LESS 3.24)  # which does not know it yet
  target_compile_options(keel_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()
if(KEEL_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # half the compile time of -O2 -g; traces keep their lines
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND NOT KEEL_SANITIZE MATCHES "fuzzer")
    # What g++ says by itself; the allocators and fibres tell the sanitizers what they do.
    if(KEEL_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__)
    elseif(KEEL_SANITIZE MATCHES "thread")
      add_compile_definitions(__SANITIZE_THREAD__)
    endif()
  endif()
  # Whatever a sanitizer finds ends the program, and so fails the test.
  add_compile_options(-fsanitize=${KEEL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KEEL_SANITIZE})
endif()

# keel_for_any_processor(FILES...): what must run before it is known what the processor has.
function(keel_for_any_processor)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -march=x86-64 SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# keel_choice(NAME help default words...): a setting of the build that is one of some words.
function(keel_choice name help standard)
  set(${name} ${standard} CACHE STRING "${help}")
  set_property(CACHE ${name} PROPERTY STRINGS ${ARGN})
  if(NOT ${name} IN_LIST ARGN)
    list(POP_BACK ARGN last)
    list(JOIN ARGN ", " words)
    message(FATAL_ERROR "${name} is '${${name}}'; it must be ${words} or ${last}")
  endif()
endfunction()

# `#include "keel/runtime/tensor.h"` works in the build tree exactly as it does once installed.
function(keel_expose folder)
  file(MAKE_DIRECTORY "${keel_BINARY_DIR}/include/keel")
  file(CREATE_LINK "${keel_SOURCE_DIR}/${folder}" "${keel_BINARY_DIR}/include/keel/${folder}" SYMBOLIC)
endfunction()

# keel_layer(FOLDER [NAME name] SOURCES ... [DEPENDS folders of layers ...] [LINKS private libraries ...]
#   [PRIVATE_HEADERS headers, and folders of them, that the layer keeps to itself and that are not installed ...])
# The layer of dist/parallel is called keel::parallel. A part of a layer that is a library of its own has a NAME.
function(keel_layer folder)
  cmake_parse_arguments(LAYER "" "NAME" "SOURCES;DEPENDS;LINKS;PRIVATE_HEADERS" ${ARGN})
  cmake_path(GET folder FILENAME name)
  if(LAYER_NAME)
    set(name ${LAYER_NAME})
  endif()
  string(REGEX REPLACE "/.*" "" top "${folder}")
  keel_expose(${top})
  add_library(keel_${name} ${LAYER_SOURCES})
  add_library(keel::${name} ALIAS keel_${name})
  set_target_properties(keel_${name} PROPERTIES EXPORT_NAME ${name} KEEL_FOLDER ${folder}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(keel_${name} PUBLIC cxx_std_20)
  target_include_directories(keel_${name} PUBLIC
    "$<BUILD_INTERFACE:${keel_BINARY_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  foreach(below IN LISTS LAYER_DEPENDS)
    cmake_path(GET below FILENAME layer)
    target_link_libraries(keel_${name} PUBLIC keel::${layer})
  endforeach()
  target_link_libraries(keel_${name} PRIVATE $<BUILD_INTERFACE:keel_flags> ${LAYER_LINKS})
  if(KEEL_SANITIZE AND NOT name MATCHES "^(runtime|kernels)$")
    # What computes lies in these two. -O1 takes two to four times as long by clang, half as long again by g++.
    target_compile_options(keel_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O0>")
  endif()
  set_property(GLOBAL APPEND PROPERTY KEEL_LAYERS ${name})
  set_property(GLOBAL APPEND PROPERTY "KEEL_PRIVATE_HEADERS_OF_${folder}" ${LAYER_PRIVATE_HEADERS})
endfunction()
