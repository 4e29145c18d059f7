# Installs the build tree into a temporary folder. Then a code in C is linked by its own compiler with what pkg-config
# says, and as a CMake project in C alone; a component that there is not is named.
# cmake -D BUILD=build -D SOURCE=repository -D COMPILER=g++ -P c_consumer.cmake
cmake_policy(VERSION 3.25)
set(folder "${BUILD}/tests/c_consumer")
file(REMOVE_RECURSE "${folder}")
include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")
set(code "${SOURCE}/tests/build/c_consumer")

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${folder}/prefix")

set(configure "${CMAKE_COMMAND}" -S "${code}" -G Ninja -D "CMAKE_PREFIX_PATH=${folder}/prefix"
  -D "CMAKE_CXX_COMPILER=${COMPILER}")
run(${configure} -B "${folder}/build")
run("${CMAKE_COMMAND}" --build "${folder}/build")
run("${folder}/build/c_code")
execute_process(COMMAND ${configure} -B "${folder}/missing" -D ALSO=quantum OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE status)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
if(status EQUAL 0 OR NOT said MATCHES "has no component quantum; it has runtime, kernels,")
  message(FATAL_ERROR "a component that there is not: ${said}")
endif()

# What is installed stands alone: every header that an installed one includes is installed, and capi has only its own.
file(GLOB_RECURSE headers RELATIVE "${folder}/prefix/include" "${folder}/prefix/include/keel/*.h")
foreach(header IN LISTS headers)
  file(STRINGS "${folder}/prefix/include/${header}" lines REGEX "^#include \"keel/")
  list(TRANSFORM lines REPLACE "^#include \"([^\"]*)\".*" "\\1")
  foreach(included IN LISTS lines)
    if(NOT included IN_LIST headers)
      message(FATAL_ERROR "${header} is installed and includes ${included}, which is not")
    endif()
  endforeach()
endforeach()
set(own ${headers})
list(FILTER own INCLUDE REGEX "^keel/capi/")
list(FILTER headers INCLUDE REGEX "^keel/(kernels/checks|trainer/schema_rows|dist/comm/algorithms/list)\\.h$")
if(headers OR NOT own STREQUAL "keel/capi/keel.h")
  message(FATAL_ERROR "headers that a layer keeps to itself were installed: ${headers} ${own}")
endif()
foreach(file IN ITEMS LICENSE README.md docs/index.md docs/comm.schema.json)
  if(NOT EXISTS "${folder}/prefix/share/doc/keel/${file}")
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()

find_program(PKG_CONFIG pkg-config)
find_program(C_COMPILER gcc)
set(ways "" --static)
if(NOT PKG_CONFIG OR NOT C_COMPILER)
  message(STATUS "left out: pkg-config; there is no pkg-config or no gcc")
  set(ways)
endif()
file(GLOB_RECURSE described "${folder}/prefix/*/keel-capi.pc")
cmake_path(GET described PARENT_PATH described)
cmake_path(GET described PARENT_PATH libraries)
foreach(way IN LISTS ways)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env "PKG_CONFIG_PATH=${described}" "${PKG_CONFIG}" --cflags --libs ${way} keel-capi
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags)
  # As the linkers of some systems do by themselves: a library counts for what stands in front of it alone.
  run("${C_COMPILER}" -std=c99 -pedantic -Wall -Wextra -Werror -Wl,--as-needed -o "${folder}/by_pkg_config" "${code}/c_code.c" ${flags}
    "-Wl,-rpath,${libraries}")
  run("${folder}/by_pkg_config")
endforeach()

# An emulator of a processor may lack instructions of the build: the first call says so.
find_program(VALGRIND valgrind)
if(VALGRIND)
  execute_process(COMMAND "${VALGRIND}" -q --tool=none "${folder}/build/c_code" OUTPUT_VARIABLE said ERROR_VARIABLE also
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0 AND NOT (status EQUAL 1 AND said MATCHES "^keel_settings_create: this build "))
    message(FATAL_ERROR "under valgrind it ended with ${status}: ${said} ${also}")
  endif()
else()
  message(STATUS "left out: a code in C under valgrind, which is not here")
endif()

# Of an installation nothing is left but what others have put there. The list is made here, since tests beside this one
# install from the same build folder.
run("${CMAKE_COMMAND}" --build "${BUILD}" --target uninstall -- -n)
file(GLOB_RECURSE files "${folder}/prefix/*")
list(JOIN files "\n" lines)
file(WRITE "${folder}/manifest.txt" "${lines}\n")
file(WRITE "${folder}/prefix/include/others.h" "")
run("${CMAKE_COMMAND}" -D "MANIFEST=${folder}/manifest.txt" -P "${SOURCE}/cmake/uninstall.cmake")
file(GLOB_RECURSE left LIST_DIRECTORIES true RELATIVE "${folder}/prefix" "${folder}/prefix/*")
list(FILTER left INCLUDE REGEX "keel|\\.h$")
if(NOT left STREQUAL "include/others.h")
  message(FATAL_ERROR "after uninstalling there are ${left}")
endif()
