# Installs the build tree into a temporary folder, builds an example against it by find_package and by pkg-config, and runs
# both on 2 and 3 processes.
# cmake -D BUILD=build -D SOURCE=repository -D EXAMPLE=embed_c -D COMPILER=mpicc -D PACKAGE=keel-capi -D LAUNCHER=mpiexec
#   -D GENERATOR=Ninja -P example.cmake
set(folder "${BUILD}/tests/${EXAMPLE}")
file(REMOVE_RECURSE "${folder}")

include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")

function(launch program)
  foreach(processes IN ITEMS 2 3)
    run("${SOURCE}/tests/dist/comm/mpi/launch" "${LAUNCHER}" ${processes} "${program}")
  endforeach()
endfunction()

set(strict -pedantic -Wall -Wextra -Werror)
list(JOIN strict " " flags)
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${folder}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE}/examples/${EXAMPLE}" -B "${folder}/build" -G "${GENERATOR}" -D CMAKE_BUILD_TYPE=Release
  -D "CMAKE_C_FLAGS=${flags}" -D "CMAKE_Fortran_FLAGS=${flags}" -D "CMAKE_PREFIX_PATH=${folder}/prefix")
run("${CMAKE_COMMAND}" --build "${folder}/build")
launch("${folder}/build/${EXAMPLE}")

find_program(PKG_CONFIG pkg-config)
find_program(MPI_COMPILER ${COMPILER})
if(NOT PKG_CONFIG OR NOT MPI_COMPILER)
  message(STATUS "left out: the example by pkg-config; there is no pkg-config or no ${COMPILER}")
  return()
endif()
file(GLOB_RECURSE described "${folder}/prefix/*/${PACKAGE}.pc")
cmake_path(GET described PARENT_PATH described)
execute_process(COMMAND "${CMAKE_COMMAND}" -E env "PKG_CONFIG_PATH=${described}" "${PKG_CONFIG}" --cflags --libs ${PACKAGE}
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags)
if(COMPILER STREQUAL "mpicc")
  list(APPEND strict -std=c99)
endif()
cmake_path(GET described PARENT_PATH libraries)
file(GLOB sources "${SOURCE}/examples/${EXAMPLE}/*.c" "${SOURCE}/examples/${EXAMPLE}/*.f90")
run("${MPI_COMPILER}" ${strict} -O2 -o "${folder}/by_pkg_config" ${sources} ${flags} "-Wl,-rpath,${libraries}")
launch("${folder}/by_pkg_config")
