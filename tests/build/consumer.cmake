# Installs the build tree into a temporary folder, then configures, builds and runs a code that embeds keel.
# cmake -D BUILD=build -D SOURCE=repository -D COMPILER=g++ -D SANITIZE= -P consumer.cmake
set(folder "${BUILD}/tests/consumer")
file(REMOVE_RECURSE "${folder}")

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${BUILD}" RESULT_VARIABLE status
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${folder}/prefix")
set(flags "${CMAKE_COMMAND}" -S "${SOURCE}/tests/build/consumer" -B "${folder}/build" -G Ninja
  -D CMAKE_BUILD_TYPE=Release -D "CMAKE_CXX_COMPILER=${COMPILER}" -D "CMAKE_PREFIX_PATH=${folder}/prefix")
if(SANITIZE)
  list(APPEND flags -D "CMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}")
endif()
run(${flags})
run("${CMAKE_COMMAND}" --build "${folder}/build" --parallel 2)
file(GLOB_RECURSE internal "${folder}/prefix/include/keel/*/cpu/*")
if(internal)
  message(FATAL_ERROR "a backend's own headers were installed: ${internal}")
endif()
run("${folder}/build/one_layer")
run("${folder}/build/all_layers")
run("${folder}/prefix/bin/keel" --version)
if(EXISTS "${folder}/build/mpi_code" AND NOT SANITIZE)
  run("${SOURCE}/tests/dist/comm/mpi/launch" mpiexec 4 "${folder}/build/mpi_code")
endif()
